"""Executes the runs of a plan in this process, in worker processes, or on Ray.

The modules of this folder are:

    progress       displays the progress of a call
    call           records the progress of a call
    runner         runs chunks in this process
    job            combines a grid, its results folder, and the runs missing there
    folder_status  describes a results folder by reading only its files
    workers        distributes a plan over workers, and runs worker processes
    ray            runs workers as tasks of Ray
    engine         chooses where to run: this process, worker processes, or Ray
"""
