"""From a table of rows to thresholds, scaling laws, figures and a report."""
