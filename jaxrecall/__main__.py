"""python -m jaxrecall: which commands there are."""

print(
    """jaxrecall: how a one-layer transformer learns to recall, swept over everything

  python -m jaxrecall.sweep --grid FILE    run a grid: a table and a picture (--dry-run shows what it would cost)
  python -m jaxrecall.status DIR           what a results folder holds, what failed, what is to do
  python -m jaxrecall.compact DIR          merge the part files of a results folder into one table
  python -m jaxrecall.fit DIR              find thresholds N* and the exponents of N* over the axes of a table
  python -m jaxrecall.report DIR           one page with pictures, laws, theory and provenance

Each takes --help. From Python: jaxrecall.simulate, realize, three_step, load."""
)
