"""Primitives, and the forms of their rules."""
