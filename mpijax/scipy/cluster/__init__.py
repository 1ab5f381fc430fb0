"""Clustering."""

# ruff: noqa: F401
from mpijax.scipy.cluster import vq
