"""Compares jaxrecall with a torch loop, a jax loop and the floor on the reference work.

The command is `python -m benchmarks`, or `make bench`. To add a figure, add a row to
`asked.yaml`, and its grid to `work.yaml`. The modules in import order:

    work.py        the grids of work.yaml, of full size and tiny
    clock.py       interleaved timings, fresh processes, the description of the machine
    asked.py       the figures of asked.yaml: how they are measured, what is required
    record.py      the file of measured figures, and the merging of partial runs
    peer.py        what the loops of the peers share
    torch_loop.py  the peer that a careful user writes in PyTorch
    jax_loop.py    the peer that a careful user writes in JAX
    floor.py       the rates that the primitives of a run reach on this machine
    child.py       the tasks of fresh processes
    programs.py    the programs that are timed
    whole.py       the figures that are no ratio of times
    runner.py      measures the figures of a group
    documented.py  prints the figures that pages show

`python -m benchmarks.on_device` measures an accelerator; on_device.yaml lists its steps
and describes the page that on_device_table.py writes. `python -m
benchmarks.accelerators`, or `make accelerators`, compiles programs without running
them:

    variants.py            every variant of the programs, from variants.yaml
    accelerators_table.py  writes results/accelerators.md from the record
    accelerators.py        compiles the variants for accelerators that are not here
    h100.textproto         the description of one of them for its compiler
"""
