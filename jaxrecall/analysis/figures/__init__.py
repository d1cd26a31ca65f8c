"""From a table of runs to figures worth a paper.

`grammar` draws tables as layers of a chart: which columns are along x and y, and which
make lines, panels and colours; `axis` places values, and `style` has looks and files.
`table` has the means and thresholds of a table of runs, and their theory. `charts` has
the figures of a report, of the end of a sweep, and of `plot`, which Python users call.
"""
