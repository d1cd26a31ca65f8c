"""From a table of runs to figures worth a paper, each with a sentence on what it shows.

`grammar` draws tables as layers of a chart: what stands along x and y, and what makes
lines, panels and colours; `axis` places values and `style` has looks and files. `study`
fits a table and `predict` asks theory. `curves`, `critical`, `maps` and `noise` hold
the figures of a report, and `plot` is what Python users call.
"""
