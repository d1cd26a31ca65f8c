"""Turns a table of rows into thresholds, scaling laws, figures and a report."""
