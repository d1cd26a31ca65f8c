"""The readable implementation, used to check the fast one: full batch, float64,
NumPy.
"""
