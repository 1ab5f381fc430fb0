"""Defines shard_alike: the identity on two arrays, which get the same sharding."""

from __future__ import annotations

from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.factors import elementwise
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at
from mpijax.transforms.zeros import Zero, instantiate


def _jvp(primals, tangents):
    return shard_alike_p.bind(*primals), shard_alike_p.bind(*map(instantiate, tangents))


def _transpose(cts, *_):
    return list(cts) if any(type(ct) is Zero for ct in cts) else shard_alike_p.bind(*cts)


def _batch(axis, args, dims):
    dim = next(d for d in dims if d is not None)
    alike = [batch_at(x, d, dim, axis) for x, d in zip(args, dims, strict=True)]
    return shard_alike_p.bind(*alike), [dim, dim]


shard_alike_p: Primitive = Primitive(
    "shard_alike",
    type_rule=lambda x, y: [x, y],
    reference=lambda x, y: [x, y],
    lower=Decompose(lambda x, y: [x, y]),
    sharding=elementwise,
    sharding_type=types.by_type_rule,  # the split over Explicit axes is already fixed
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    vma=lambda avals, params: None,
    keys=key_reuse.each_its_own,
)
