"""Clustering."""

from mpijax.scipy.cluster import vq

__all__ = [
    "vq",
]  # fmt: skip
