"""jaxrecall, a torch loop, a jax loop and the floor side by side on the reference work:
`python -m benchmarks`, or `make bench`.

In import order:

    work.py        the reference work, and the same in small
    clock.py       interleaved timings, fresh processes, this machine
    record.py      the table asked for, its file and the merging of partial runs
    torch_loop.py  the peer that a careful user writes in PyTorch
    jax_loop.py    the peer that a careful user writes in JAX
    floor.py       what the primitives of a run reach on this machine
    child.py       what fresh processes run
    bench.py       what every group of measurements needs
    runs.py engines.py gpu.py guard.py estimates.py pool.py scale.py search.py    the
        measurements
    groups.py      which function measures which group

Beside it, compiled and not run: `python -m benchmarks.accelerators`, or `make
accelerators`.

    variants.py            every variant of the programs
    accelerators_table.py  results/accelerators.md, from the record
    accelerators.py        compiles the variants for accelerators that are not here
    h100.textproto         one of them, as its compiler wants it described

With known truths: `python -m benchmarks.crossings` and `python -m
benchmarks.fit_coverage`.

    crossings.py           how good crossings and their intervals are, of searches and
        of tables
    fit_coverage.py        how often 95 % intervals of exponents and thresholds hold the
        truth
"""
