"""From missing runs to compiled programs, chunks and shares, by what they cost."""
