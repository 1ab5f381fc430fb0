"""Calls of Python, C and Numba functions, and the order of their effects."""
