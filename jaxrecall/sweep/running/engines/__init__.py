"""More than one process: a plan carried out by workers on this machine, on Ray, or by a Slurm array.

engine.py       the choice between them on the command line
pool.py         a plan carried out by a pool of workers of any kind
dispatcher.py   which worker works on what
events.py       the tasks of a worker, and its reports
worker.py       what a worker does
process.py      a process that a pool starts on this machine
child.py        its first lines
local.py        --workers: processes of this machine
ray.py          --engine ray: actors
ray_driver.py   the process that uses Ray
slurm.py        --engine slurm: shards as an array
"""
