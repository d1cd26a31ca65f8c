"""The attacks of `make attack`, and what none of them reaches."""

from attack.tries import Attack

ATTACKS = (
    Attack(
        "points",
        "small-points",
        "random small points of all switches against the float64 reference",
        "attack.points:small",
        14,
        300,
    ),
    Attack(
        "points",
        "extreme-points",
        "points with fields at their limits, run",
        "attack.points:extreme",
        10,
        300,
    ),
    Attack(
        "points",
        "planned-points",
        "points with all fields at limits, planned only",
        "attack.points:planned",
        2,
        5000,
    ),
    Attack(
        "kills",
        "kill-sweep",
        "sweeps killed at random moments and resumed",
        "attack.kills:one_process",
        5,
        100,
    ),
    Attack(
        "kills",
        "kill-workers",
        "the same with two workers",
        "attack.kills:workers",
        5,
        100,
    ),
    Attack(
        "kills",
        "kill-search",
        "a search killed and resumed",
        "attack.kills:search",
        5,
        100,
    ),
    Attack(
        "kills",
        "kill-search-workers",
        "the same with two workers",
        "attack.kills:search_workers",
        5,
        100,
    ),
    Attack(
        "kills",
        "kill-training",
        "120 steps of training with two workers, killed and resumed",
        "attack.kills:training",
        6,
        100,
    ),
    Attack(
        "kills",
        "kill-cold",
        "sweeps that compile, killed while programs are stored, and resumed",
        "attack.program_cache:killed",
        5,
        40,
    ),
    Attack(
        "environment",
        "damaged-programs",
        "stored programs that are damaged",
        "attack.program_cache:damaged",
        3,
        10,
    ),
    Attack(
        "environment",
        "hostile-programs",
        "folders of programs that others could write",
        "attack.program_cache:hostile",
        3,
        42,
    ),
    Attack(
        "kills",
        "kill-compact",
        "compact --prune of 600 parts, killed in each of its stages and repeated",
        "attack.kill_compact:pruned",
        5,
        100,
    ),
    Attack(
        "kills",
        "signals",
        "signals of all kinds to one process, two workers, one of them stopped",
        "attack.signals:sweeps",
        5,
        100,
    ),
    Attack(
        "kills",
        "permissions",
        "no permission at any level, all commands, resumed",
        "attack.permissions:every_level",
        5,
        450,
    ),
    Attack(
        "environment",
        "jax-settings",
        "settings of JAX and XLA by variables",
        "attack.environment:settings",
        8,
        50,
    ),
    Attack(
        "environment",
        "locales",
        "all commands in other locales",
        "attack.environment:locales",
        3,
        36,
    ),
    Attack(
        "environment",
        "encodings",
        "encodings of grid files",
        "attack.environment:encodings",
        1,
        8,
    ),
    Attack(
        "environment",
        "limits",
        "limits of the process, commands then resumed",
        "attack.environment:limits",
        6,
        63,
    ),
    Attack(
        "environment",
        "metadata",
        "odd metadata in one part, all commands",
        "attack.environment:metadata",
        5,
        432,
    ),
    Attack(
        "Python",
        "settings",
        "settings of JAX and Python in a program",
        "attack.stress:settings",
        6,
        32,
    ),
    Attack(
        "Python",
        "places",
        "threads, a loop, spawn, fork, broken streams, xdist, IPython, joblib",
        "attack.stress:places",
        6,
        120,
    ),
    Attack(
        "Python",
        "interrupts",
        "Ctrl-C at random moments of run, resumed",
        "attack.stress:interrupts",
        6,
        100,
    ),
    Attack(
        "Python",
        "notebook",
        "a kernel interrupted or restarted during run",
        "attack.stress:notebook",
        5,
        100,
    ),
    Attack(
        "damage",
        "parts",
        "damaged parts and tables, all commands, resumed",
        "attack.damage:parts",
        8,
        1000,
    ),
    Attack(
        "damage",
        "files",
        "damaged manifests, records and folders, all commands, resumed",
        "attack.damage:others",
        6,
        1000,
    ),
    Attack(
        "damage",
        "links",
        "folders with links and with files of the user, all commands that write",
        "attack.links:hostile_folders",
        6,
        500,
    ),
    Attack(
        "input",
        "grid-files",
        "hostile grid files, read and planned",
        "attack.inputs:grid_files",
        3,
        5000,
    ),
    Attack(
        "input",
        "grid-dicts",
        "hostile grids as Python objects",
        "attack.inputs:grid_dicts",
        3,
        5000,
    ),
    Attack(
        "input",
        "tables",
        "hostile tables, fit and report",
        "attack.inputs:tables",
        6,
        2000,
    ),
    Attack(
        "input",
        "commands",
        "hostile command lines of all commands",
        "attack.commands:lines",
        4,
        5000,
    ),
    Attack(
        "input",
        "api",
        "values of any type in the functions of the package",
        "attack.calls:values",
        6,
        5000,
    ),
    Attack(
        "input",
        "browser",
        "every text of a folder hostile: its report in Chromium, its files, its fit",
        "attack.browser:reports",
        6,
        200,
    ),
)

NOT_COVERED = (
    (
        "Ray and Slurm, which have tests of their own: `tests/sweep/test_signals.py`"
        " and `make slurm`."
    ),
    "Accelerators: everything here runs on a CPU.",
    (
        "Clocks that jump or stand still, disks that fill, network file systems that"
        " lose locks."
    ),
    "Points that take more than a minute or 2 GiB: they are planned, not run.",
    (
        "A standard output that is closed before JAX is imported: JAX refuses to be"
        " imported then."
    ),
    "A fork after JAX has started: its threads do not survive one, as JAX says.",
    "Users other than the owner who share a folder by group or by access lists.",
    (
        "The column n_tied, and values that rounding of the embeddings by 1e-5 changes:"
        " they are not held against a row."
    ),
    (
        "Numbers of pools whose counts are drawn from their Gaussian limit: the"
        " reference cannot write them out."
    ),
    (
        "macOS, and versions of Python and JAX other than those installed and those of"
        " `make versions`."
    ),
    "Packages that are installed with this one: no lock, no hashes.",
)
