"""More than one process: a plan carried out by workers on this machine, on Ray, or by a Slurm array.

options.py      the choice between them
scheduler.py    workers of any kind: which of them runs what, and what becomes of it
worker.py       what a worker process does
local.py        --workers: processes of this machine
ray.py          --engine ray: processes of Ray actors
slurm.py        --engine slurm: shards as an array
"""
