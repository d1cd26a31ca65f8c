"""The readable implementation (full batch, float64, NumPy). Tests compare the fast
implementation with it.
"""
