"""The attacks of `make attack`, and what none of them reaches."""

from pathlib import Path

import yaml

from attack.tries import Attack

LISTED = (Path(__file__).parent / "attacks.yaml").read_text()
ATTACKS = tuple(Attack(**given) for given in yaml.safe_load(LISTED))

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
