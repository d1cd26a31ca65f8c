"""Sweeps: from a grid file to rows in a results folder."""
