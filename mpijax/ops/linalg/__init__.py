"""Factorizations and solutions of linear systems: a file for each family of primitives.

Matrices are the last two axes, vectors the last one; the axes before them are stacks. What a primitive means is said
by SciPy's LAPACK, a matrix at a time (`reference`); those that programs spend their time in are called by pointer.
"""
