"""jaxrecall, a torch loop, a jax loop and the floor side by side on the reference work: `python -m benchmarks`, or `make bench`.

work.py        the reference work, and the same in small
torch_loop.py  the peer that a careful user writes in PyTorch
jax_loop.py    the peer that a careful user writes in JAX
floor.py       what the primitives of a run reach on this machine
clock.py       interleaved timings, fresh processes, this machine
child.py       what fresh processes run
figures.py     measures the asked figures; search.py, gpu.py, engines.py and scale.py some of them
report.py      the table asked for, its file and the merging of partial runs
"""
