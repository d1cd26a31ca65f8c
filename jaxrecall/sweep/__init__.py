"""Runs sweeps: computes the rows of a grid file and writes them to a results folder."""
