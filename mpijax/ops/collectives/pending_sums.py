"""Casts between the types of values with pending sums, inside `shard_map`, and the sum itself.

The shards of an unreduced value are summands. The shards of a reduced value are equal, and its cotangent is unreduced.
Only `unreduced_psum` communicates. With these pairs of transposes, gradients wait for their sum as well:

    vary_unreduced_cast   varying -> unreduced      reduced_vary_cast   reduced -> varying
    unreduced_psum        unreduced -> invariant    preduced            invariant -> reduced
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.rules import shape_rules
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.index_maps import identity
from mpijax.core.rules.lowering import Communication, Exchange, OverRanks, Structural, ViewKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.ops.collectives.reductions import invariant_batch, of_same_bits
from mpijax.ops.collectives.scope import converted, effects, linear_jvp, vma_of
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero


def reduced_vary_cast(x: Any, axes: tuple) -> Any:
    """A reduced value, typed as varying over mesh axes."""
    return reduced_vary_cast_p.bind(x, axes=axes)


def transposed_by(name: str) -> Callable:
    """The transpose of an operation that has another one with the same parameters as transpose."""

    def transpose(ct, x, **params):
        return [Zero(x.aval) if type(ct) is Zero else registry[name].bind(ct, **params)]

    return transpose


def _cast(name: str, transpose: str, start: str, end: str) -> Primitive:
    def batch(axis, args, dims, *, axes):
        """Over a mesh axis inside this process, whose shards are the batch, types are not tracked."""
        [x], [d] = args, dims
        rest = tuple(n for n in axes if n != axis.name)
        return (registry[name].bind(x, axes=rest) if rest else x), d

    return Primitive(
        name,
        type_rule=lambda x, *, axes: converted(x, axes, start, end, name),
        reference=lambda x, *, axes: x,
        lower=Structural(identity, ViewKind.SAME),
        sharding=shape_rules.copied,
        sharding_type=types.by_type_rule,
        jvp=linear_jvp(name),
        transpose=transposed_by(transpose),
        batch=batch,
        vma=vma_of("axes", start, end),
        keys=key_reuse.SAME,
    )


# JAX's names, of which two end in _p.
vary_unreduced_cast_p = _cast("vary_unreduced_cast_p", "reduced_vary_cast_p", "varying", "unreduced")
reduced_vary_cast_p = _cast("reduced_vary_cast_p", "vary_unreduced_cast_p", "reduced", "varying")
preduced_p = _cast("preduced", "unreduced_psum", "invarying", "reduced")

unreduced_psum_p = Primitive(
    "unreduced_psum",
    type_rule=lambda x, *, axes: converted(x, axes, "unreduced", "invarying", "unreduced_psum"),
    reference=lambda x, *, axes: x,
    lower=Communication(Exchange.ALLREDUCE, OverRanks.SUM),
    sharding_type=types.by_type_rule,
    jvp=linear_jvp("unreduced_psum"),
    transpose=transposed_by("preduced"),
    batch=invariant_batch("unreduced_psum"),
    effects=effects("axes"),
    vma=vma_of("axes", "unreduced", "invarying"),
)
unreduced_psum_p.same_bits = of_same_bits(unreduced_psum_p)
