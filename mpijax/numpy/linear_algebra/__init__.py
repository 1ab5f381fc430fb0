"""Products, factorizations, solutions and norms; `numpy.linalg` is their public face."""
