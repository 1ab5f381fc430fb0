"""Transformations of traced programs: derivatives, vectorization, jit. Public names are in `mpijax`."""
