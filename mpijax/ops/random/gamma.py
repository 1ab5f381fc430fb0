"""Defines `random_gamma`: gamma variables from keys, with the derivative by the shape parameter.

Operands: keys, whose shape is that of the leading axes of the second operand; the shape parameter of each variable. All
elements of a key draw from keys split off that key.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.base import provided
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.ops.elementwise.binary import div, mul
from mpijax.ops.elementwise.special import random_gamma_grad
from mpijax.ops.families import NOT_LINEAR, PerOperand
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at


def _draw(key: Any, a: Any, *, log_space: bool) -> Any:
    return provided.draw_gamma(key, a, log_space)


def _tangent(g: Any, ans: Any, _key: Any, a: Any, *, log_space: bool) -> Any:
    if not log_space:
        return mul(g, random_gamma_grad(a, ans))
    sample = provided.gamma_of_log(ans)
    return mul(g, div(random_gamma_grad(a, sample), sample))


def _batch(axis: Any, args: Any, dims: Any, *, log_space: bool) -> Any:
    key, a = (batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True))
    return random_gamma_p.bind(key, a, log_space=log_space), 0


random_gamma_p = Primitive(
    "random_gamma",
    type_rule=lambda key, a, *, log_space: a,
    reference=_draw,
    lower=Decompose(_draw),
    jvp=NOT_LINEAR,  # set below, as it refers to the primitive
    transpose=NOT_LINEAR,
    batch=_batch,
    sharding_type=lambda s: [s.axes(0)],
    keys=key_reuse.DRAW,
)
random_gamma_p.jvp = PerOperand(None, _tangent).attach(random_gamma_p)
