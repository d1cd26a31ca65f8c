"""Heat maps of accuracy over N and d, and over N and L, from results/study/map.

The line where theory predicts an accuracy of one half is drawn on top.
"""

from law import STUDY

from jaxrecall import load, plot


def over_widths():
    """The map over N and d at L = 256, with a panel for each path of the trigger."""
    return "over-d", drawn("L == 256 and N >= 64", "d")


def over_lengths():
    """The map over N and L at d = 64, with a panel for each path of the trigger."""
    return "over-L", drawn("d == 64", "L")


def drawn(condition, y):
    """Draws accuracy over N and another axis."""
    rows = load(STUDY / "map").query(condition)
    return plot.figure(
        rows, y, x="N", colour="accuracy", contour="theory", panels="trigger_in_value"
    )
