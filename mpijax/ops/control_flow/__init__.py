"""Loops and branches as primitives: each holds the Jaxprs of its bodies as parameters."""
