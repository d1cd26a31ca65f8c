"""Carries out a plan: in this process, in worker processes, or on Ray.

The modules of this folder are:

    progress   how a call shows its progress
    call       what has happened in a call
    runner     runs in this process
    job        a grid, its results folder, and what is missing there
    status     what a results folder has, from its files alone
    workers    what a worker does; which worker runs what, and what becomes of it;
        workers that are processes of this machine
    ray        workers that are tasks of Ray
    engine     the choice among these
"""
