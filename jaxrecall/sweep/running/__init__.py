"""Executes the runs of a plan in this process, in worker processes, or on Ray.

The modules of this folder are:

    progress       shows the progress of a call
    call           records what has happened in a call
    runner         runs chunks in this process
    job            combines a grid, its results folder, and the runs missing there
    folder_status  describes a results folder, from its files alone
    workers        distributes a plan over workers, and runs worker processes
    ray            runs workers as tasks of Ray
    engine         chooses this process, worker processes, or Ray
"""
