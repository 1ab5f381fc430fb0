"""Elementwise choice between arrays."""

from __future__ import annotations

from mpijax import lax
from mpijax.numpy.creation.constructors import asarray
from mpijax.numpy.reductions.argreductions import argmax
from mpijax.numpy.reductions.reduce import to_bool
from mpijax.numpy.shapes.join import stack
from mpijax.numpy.util import broadcast_together, check_arraylike, promote_dtypes


def select(condlist, choicelist, default=0):
    """For each element, the choice of the first condition that holds, else `default`.

    Args:
      condlist: list of bool arrays.
      choicelist: list of as many arrays. All arrays broadcast against each other, and the choices are promoted to one
        dtype.

    >>> x = jnp.array([-5, 1, 20])
    >>> jnp.select([x < 0, x > 10], [0, 10], x)
    Array([ 0,  1, 10], dtype=int32)
    """
    if len(condlist) != len(choicelist):
        raise ValueError(
            f"condlist must have length equal to choicelist ({len(condlist)} vs {len(choicelist)})"
        )
    if not len(condlist):
        raise ValueError("condlist must be non-empty")
    check_arraylike("select", *condlist, *choicelist, default)
    conditions = [asarray(c) for c in condlist]
    choices = promote_dtypes(asarray(default), *map(asarray, choicelist))
    # A leading False makes the index 0 if no condition holds.
    stacked = to_bool(stack(broadcast_together(asarray(False), *conditions)))
    return lax.select_n(*broadcast_together(argmax(stacked, axis=0), *choices))
