"""The sources of the samples of a run, one module each: stream, counts, pool, memory.

Module `<name>` contains an object `SOURCE`, which computes gradients and losses and
draws the sequences that are measured. Module `<name>_cost` contains an object `COST`,
which estimates their cost. Planning imports only the costs, because sources start JAX.

A new source needs these two modules, a row of `forms.FORMS`, and a condition in
`forms.form_for` that chooses it (in `forms.source_for` too, if its form is exact). If
users choose the source, it also needs a new field of the point. Data that it prepares
for several steps needs a field of `World`. The tokens of samples are drawn outside of
sources, by `World.tokens`.
"""
