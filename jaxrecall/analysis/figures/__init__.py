"""Draws tables of runs as figures that are suitable for papers.

A table of runs becomes a figure in this order:

- `table_of_runs` asks the fit for axes and thresholds, averages over seeds, and refuses
  means over more than seeds. `theory_lines` evaluates theory along an axis.
- `layers`: a layer is a table that is drawn in one way, such as `Polyline`.
- `figure`: a chart is a list of layers over panels, and draws them in one pass.
- `charts` makes the charts of reports and sweeps, and `plot` those of Python users.

`style` and `styled` define the look of figures.
"""
