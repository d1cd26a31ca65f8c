"""Executes the runs of a plan in this process, in worker processes, or on Ray.

The modules of this folder are:

    progress   displays the progress of a call
    mistakes   records failures with equal errors once
    call       records the progress of a call, and saves its rows
    runner     runs chunks in this process
    job        combines a grid, its results folder, and the runs missing there
    workers    gives shares of a plan to workers, which are processes of this machine
    ray        runs workers as tasks of Ray
    engine     chooses where to run: this process, worker processes, or Ray
"""
