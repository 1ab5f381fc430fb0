"""Loops and branches."""

from mpijax.lax import associative_scan, cond, cumsum, fori_loop, map, scan, switch, while_loop

__all__ = ["associative_scan", "cond", "cumsum", "fori_loop", "map", "scan", "switch", "while_loop"]
