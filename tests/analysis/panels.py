"""What the panels of a figure show: points of lines, marks, bars and legends."""

import matplotlib

matplotlib.use("Agg")

import matplotlib.pyplot as plt
import numpy as np
import pytest


@pytest.fixture(autouse=True)
def close():
    """A file that imports it closes the figures of each test."""
    yield
    plt.close("all")


def xy(line):
    """The points of a line, (n, 2)."""
    return np.asarray(line.get_xydata(), float)


def lines(ax, style):
    """The points of each line of this style, which is "-" or "--"."""
    drawn = [line for line in ax.lines if line.is_dashed() == (style == "--")]
    return [xy(line) for line in drawn if line.get_linestyle() != "None"]


def marks(ax, marker):
    """The points of all lines that have this marker."""
    drawn = [line for line in ax.lines if line.get_marker() == marker]
    return [point for line in drawn for point in xy(line).tolist()]


def bars(ax):
    """The ends of the bars along y."""
    paths = [path for drawn in ax.collections for path in drawn.get_paths()]
    return {tuple(path.vertices[:, 1].tolist()) for path in paths}


def legend(drawn):
    """The texts of the legends of Axes or of a figure."""
    of_axes = hasattr(drawn, "get_legend")
    legends = [drawn.get_legend()] if of_axes else drawn.legends
    return [text.get_text() for each in legends if each for text in each.get_texts()]


def titles(drawn):
    return [ax.get_title() for ax in drawn.axes]


def means(frame, *by):
    """The mean accuracy of runs by these columns."""
    accuracy = frame["n_correct"] / frame["n_test"]
    return frame.assign(p=accuracy).groupby([*by])["p"].mean()
