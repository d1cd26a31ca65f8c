"""More than one process: a plan carried out by workers on this machine, on Ray, or by a Slurm array.

options.py      the choice between them on the command line
scheduler.py    workers of any kind: which of them runs what, and what becomes of it
worker.py       what a worker process does
process.py      how one is started on this machine
local.py        --workers: processes of this machine
ray.py          --engine ray: processes of Ray actors
ray_driver.py   the process that uses Ray, and its actors
slurm.py        --engine slurm: shards as an array
"""
