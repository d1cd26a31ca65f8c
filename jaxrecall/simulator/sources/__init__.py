"""The ways in which a run gets its samples, each in a module of its own.

They are stream, counts, pool and memory; `forms` chooses one for a point. The module of
that name has an object `SOURCE`, which computes gradients and losses and draws the
sequences that are measured. The module `<name>_cost` has an object `COST`, which
estimates what that takes. Planning imports the costs alone, because sources start JAX.
"""
