"""Reductions over windows."""
