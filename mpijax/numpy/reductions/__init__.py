"""Reductions, cumulative operations and statistics."""
