"""The four sources of samples, with one module each: stream, counts, pool, memory.

The module `<name>` contains an object `SOURCE`. It computes gradients and losses, and
draws the sequences that are measured. Planning imports only `cost`, which estimates the
cost of each source, because sources start JAX.

A new source needs a module, formulas of its cost in `cost`, a row in `forms.FORMS`, and
a condition in `forms.form_for` that chooses the source. If users choose the source, the
point needs a new field. If the source prepares data for several steps, `World` needs a
field for them. Sources do not draw tokens themselves: `World.tokens` does.
"""
