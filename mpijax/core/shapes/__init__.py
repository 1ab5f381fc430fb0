"""Sizes of axes, numbers or symbols, and positions as functions of loop variables."""
