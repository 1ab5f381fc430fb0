"""Polynomials, convolution, interpolation."""
