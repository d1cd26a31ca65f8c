"""Compares jaxrecall with a torch loop, a jax loop and the floor on the reference work.

The command is `python -m benchmarks`, or `make bench`. Its modules in import order:

    work.py        the reference work, and a small version of it
    clock.py       interleaved timings, fresh processes, the description of the machine
    record.py      the requested table, its file, and the merging of partial runs
    torch_loop.py  the peer that a careful user writes in PyTorch
    jax_loop.py    the peer that a careful user writes in JAX
    floor.py       the rates that the primitives of a run reach on this machine
    child.py       the tasks of fresh processes
    bench.py       the objects that every group of measurements needs
    runs.py engines.py gpu.py guard.py estimates.py pool.py scale.py search.py
                   the measurements
    groups.py      the function that measures each group

`python -m benchmarks.accelerators`, or `make accelerators`, compiles programs without
running them:

    variants.py            every variant of the programs
    accelerators_table.py  writes results/accelerators.md from the record
    accelerators.py        compiles the variants for accelerators that are not here
    h100.textproto         the description of one of them for its compiler

`python -m benchmarks.crossings` and `python -m benchmarks.fit_coverage` use data whose
truth is known:

    crossings.py           the quality of crossings and their intervals, in searches and
                           in tables
    fit_coverage.py        how often 95 % intervals of exponents and thresholds contain
                           the truth
"""
