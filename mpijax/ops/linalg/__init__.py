"""Matrix factorizations and solutions of linear systems: one file for each family of primitives.

Matrices are the last two axes, vectors the last one; the axes before them are batch axes. SciPy's LAPACK, applied to
one matrix at a time, defines each primitive (`reference`). Programs call the expensive ones by pointer.
"""
