"""Past one process: the same plan, carried out by workers of this machine, of Ray, or by a Slurm array.

engine.py       which of them, as chosen on the command line
pool.py         a plan by a pool of workers, whoever keeps them
dispatcher.py   which worker works on what
events.py       what a worker is given, and what it reports
worker.py       what a worker does
local.py        --workers: processes of this machine
ray.py          --engine ray: actors
slurm.py        --engine slurm: shards as an array
"""
