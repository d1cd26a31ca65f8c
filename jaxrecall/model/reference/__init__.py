"""The readable implementation, which judges the fast one: full batch, float64,
NumPy.
"""
