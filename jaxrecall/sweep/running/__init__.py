"""Carries out a plan: in this process, in worker processes, on Ray or Slurm.

Its modules:

    job        a grid, its results folder, and what is missing there
    programs   the programs of a plan as lines of a dry run
    progress   what has happened so far, and how it is shown
    recorder   what every engine does with finished runs; runs in this process
    status     what a results folder holds, from its files alone
    options    the choice of an engine
    scheduler  workers of any kind: which of them runs what, and what becomes of it
    worker     what a worker process does
    processes  worker processes of this machine, and of Ray
    ray        the process that uses Ray
    slurm      shards as an array of Slurm
"""
