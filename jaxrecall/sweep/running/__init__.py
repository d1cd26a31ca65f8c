"""Carries out a plan: in this process, in worker processes, or on Ray.

Its modules:

    progress   how the progress of a call is told
    record     what has happened in a call; runs in this process
    job        a grid, its results folder, and what is missing there
    status     what a results folder holds, from its files alone
    pool       what a worker does; which worker runs what, and what becomes of it;
        workers that are processes of this machine
    ray        workers that are tasks of Ray
    options    the choice of an engine
"""
