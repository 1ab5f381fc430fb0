"""Reads and writes parts of arrays: `x[i]`, `x.at[i]`, conditions, positions."""
