"""Draws tables of runs as figures in the quality of a paper.

`grammar` draws tables as layers of a chart. It assigns columns to x and y, to lines,
panels and colours. `axis` places the values along an axis, and `style` contains the
looks and writes files. `table_of_runs` computes the means, thresholds and theory of a
table of runs. `charts` contains the figures of a report, of the end of a sweep, and of
`plot`. `plot` is the interface for Python users.
"""
