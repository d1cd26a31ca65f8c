"""Results folders and Parquet tables: rows in, rows out."""
