"""Operations of differentiation itself: sums of tangents, and `stop_gradient`."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules import factors, sum_types
from mpijax.core.rules.lowering import Decompose, Elementwise, Meaning, Zeros
from mpijax.core.rules.primitive import Primitive
from mpijax.core.trees.tree import tree_map
from mpijax.core.types.typeof import typeof
from mpijax.ops.families import (
    ANY,
    CONSTANT,
    LINEAR,
    PerOperand,
    elementwise,
    scalar_rule,
)
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at


def _add_any_batch(axis, args, dims):
    dim = next(d for d in dims if d is not None)
    x, y = (batch_at(a, d, dim, axis, by_numpy=True) for a, d in zip(args, dims, strict=True))
    return add_any_p.bind(x, y), dim


# Adds tangents or cotangents of one value that come from several uses. A separate primitive, so that Jaxprs
# distinguish these sums from the program's own.
add_any_p = elementwise(
    "add_any",
    ANY,
    ANY,
    reference=np.add,
    lower=Elementwise(scalar_rule("add"), additive=True, zeros=Zeros.PASSED, meaning=Meaning.COTANGENT_SUM),
    jvp=PerOperand(lambda g, ans, x, y: g, lambda g, ans, x, y: g),
    transpose=lambda ct, x, y: [ct, ct],
    batch=_add_any_batch,
)


def stop_gradient(x: Any) -> Any:
    """The identity, with derivative zero. Works on pytrees.

    >>> mpijax.grad(lambda x: x * lax.stop_gradient(x))(jnp.float32(3))
    Array(3., dtype=float32)
    """

    def stop(leaf):
        dtype = typeof(leaf).dtype
        bare = dtype == dtypes.float0 or isinstance(dtype, dtypes.ExtendedDType)
        return leaf if bare else stop_gradient_p.bind(leaf)

    return tree_map(stop, x)


stop_gradient_p = elementwise(
    "stop_gradient",
    ANY,
    reference=lambda x: x,
    lower=Decompose(lambda x: x),  # free in a compiled program
    jvp=CONSTANT,
)

stop_gradient_p.sharding = factors.elementwise

copy_p: Primitive = elementwise(
    "copy",
    (*ANY, np.void, dtypes.extended),
    reference=np.copy,
    lower=Elementwise(scalar_rule("copy"), 0, zeros=Zeros.PASSED),
    jvp=LINEAR,
    transpose=lambda ct, x: [copy_p.bind(ct)],
)
copy_p.keys = key_reuse.SAME
copy_p.sums = sum_types.linear
