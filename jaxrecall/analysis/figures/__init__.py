"""Draws tables of runs as figures that are suitable for papers.

`plot` is the interface for Python users, and `charts` composes the figures of runs that
reports, sweeps and `plot` draw; `searches` composes those of threshold searches.
`grammar` arranges layers in panels, and `layers` draws their tables: it assigns columns
to x and y, to lines and to colours. `axis` places values along an axis. `style` and
`styled` define the look of figures.

`table_of_runs` computes means and thresholds of runs, and `averages` refuses means over
more than seeds. `theory_lines` evaluates theory along an axis, and `curve` chooses the
places for it.
"""
