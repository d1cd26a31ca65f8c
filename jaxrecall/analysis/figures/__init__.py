"""From a table of runs to figures worth a paper.

`grammar` draws tables as layers of a chart: what stands along x and y, and what makes
lines, panels and colours; `axis` places values and `style` has looks and files. `runs`
has means and thresholds of a table, and what theory says of them. `charts` has the
figures that a report, the end of a sweep and `plot`, what Python users call, share.
"""
