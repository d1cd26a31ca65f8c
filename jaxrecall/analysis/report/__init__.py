"""A report: one HTML page with figures, tables and provenance. `tables` and `page` make the HTML, `write` writes all of it."""
