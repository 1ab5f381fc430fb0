"""Elementwise functions, ufunc objects, and functions that lift others over axes."""
