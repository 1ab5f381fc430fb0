"""Versions as programs compare them."""

import re

__all__ = ["versiontuple"]


def versiontuple(verstr: str) -> tuple[int, ...]:
    """The first three numbers of a version; what comes after the numbers does not count.

    >>> from mpijax.mpi._src import jax_compat
    >>> jax_compat.versiontuple("0.10.2.dev3")
    (0, 10, 2)
    """
    return tuple(int(n) for n in re.findall(r"\d+", re.split(r"[^0-9.]", verstr)[0])[:3])
