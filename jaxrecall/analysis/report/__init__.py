"""From a table of runs to a report: pictures worth a paper, each with a sentence on what it shows, and tables.

`study` is what it is about, `axes` what goes where and `chart` the pixels over two axes. `accuracy`, `critical`, `trace`,
`trace_critical`, `phase`, `collapse`, `noise`, `agreement` and `decoders` draw one kind of picture each; `predict` asks theory;
`style` has looks and files. `draw` draws them all. `tables` and `page` make the HTML; `write` writes all of it, and `progress` shows
how far it is. `plot` draws single figures for Python.
"""
