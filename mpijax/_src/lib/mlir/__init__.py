"""Builders of operations, for lowering rules."""
