"""Reads and writes of slices and of elements by index."""
