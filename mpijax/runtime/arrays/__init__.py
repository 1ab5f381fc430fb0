"""Concrete arrays, their devices, and their placement."""
