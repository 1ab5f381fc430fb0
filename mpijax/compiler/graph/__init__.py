"""Represents the program as a graph of values: inlines calls, merges equal operations, simplifies operations."""
