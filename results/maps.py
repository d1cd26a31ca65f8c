"""Accuracy as a heat map over N and d, and over N and L, with theory's line of accuracy
one half, from results/study/map.
"""

from law import STUDY

from jaxrecall import load, plot


def over_widths():
    """L = 256, a panel for each path of the trigger."""
    return "over-d", drawn("L == 256 and N >= 64", "d")


def over_lengths():
    """d = 64, a panel for each path of the trigger."""
    return "over-L", drawn("d == 64", "L")


def drawn(condition, y):
    """Accuracy over N and another axis."""
    rows = load(STUDY / "map").query(condition)
    return plot.figure(
        rows, y, x="N", colour="accuracy", contour="theory", panels="trigger_in_value"
    )
