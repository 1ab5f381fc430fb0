"""Sorts, partitions, sets."""
