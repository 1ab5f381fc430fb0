"""Computes elementwise operations on PRNG keys, such as comparisons, word by word."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax import lax
from mpijax.core.rules.lowering import Combiner
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.random.keys import random_unwrap_p

if TYPE_CHECKING:
    from mpijax.compiler.graph.nodes import Value
    from mpijax.compiler.graph.simplify import Op


def over_words(builder: Any, op: Op) -> list[Value] | None:
    """The results of an operation on PRNG keys, combined over their words; None for other operands.

    One key broadcasts against many.
    """
    combiner = op.primitive.lower.over_words
    if combiner is None or all(isinstance(v.aval.dtype, np.dtype) for v in op.inputs):
        return None
    shape = max((v.shape for v in op.inputs), key=len)

    def pure(primitive, params, inputs, aval):
        return builder.pure(primitive, params, inputs, [aval], op.source)[0]

    def words_of(keys):
        words = pure(random_unwrap_p, {}, [keys], ShapedArray(keys.shape, keys.element))
        if keys.shape == shape:
            return words
        last = tuple(range(len(shape) - len(keys.shape), len(shape)))
        params = {"shape": shape, "broadcast_dimensions": last, "sharding": None}
        return pure(lax.broadcast_in_dim_p, params, [words], ShapedArray(shape, keys.element))

    of_words = pure(op.primitive, {}, [words_of(v) for v in op.inputs], ShapedArray(shape, np.bool_))
    combine = {Combiner.AND: lax.reduce_and_p, Combiner.OR: lax.reduce_or_p}[combiner]
    return [pure(combine, {"axes": (len(shape) - 1,), "out_sharding": None}, [of_words], op.avals[0])]
