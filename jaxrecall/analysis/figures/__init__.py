"""Draws tables of runs as figures that are suitable for papers.

`grammar` draws tables as layers of a chart. It assigns columns to x and y, to lines, to
panels and to colours. `axis` places values along an axis. `style` defines the look of
figures and writes files. `table_of_runs` computes means, thresholds and theory for a
table of runs. `charts` composes the figures that reports, sweeps and `plot` draw.
`plot` is the interface for Python users.
"""
