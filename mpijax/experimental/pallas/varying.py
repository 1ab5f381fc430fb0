"""Inside `shard_map`, a kernel is traced as if its values were the same on all ranks; its results vary again.

A kernel does not know mesh axes: it starts loops with zeros, and writes constants to places that other programs wrote
data to. With varying types, each of these would need a `pvary`. The results of a kernel vary over all axes over which
an operand varies.
"""

from __future__ import annotations

from typing import Any

from mpijax.core.rules import shape_rules
from mpijax.core.rules.index_maps import identity
from mpijax.core.rules.lowering import Structural, ViewKind
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.scope import linear_jvp, same_type
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero


def vary_as(x: Any, axes: frozenset) -> Any:
    """`x`, typed as varying over `axes` and no others; moves nothing."""
    return x if typeof(x).vma == axes else vary_as_p.bind(x, axes=tuple(sorted(axes, key=str)))


def _transpose(ct, x, *, axes):
    return [ct if type(ct) is Zero else vary_as(ct, x.aval.vma)]


def _batch(axis, args, dims, *, axes):
    """Along the batch's own axis the examples are what varies."""
    [x], [d] = args, dims
    return vary_as(x, frozenset(axes) - {axis.name}), d


vary_as_p = Primitive(
    "vary_as",
    type_rule=same_type,
    reference=lambda x, *, axes: x,
    lower=Structural(identity, ViewKind.SAME),
    sharding=shape_rules.copied,
    jvp=linear_jvp("vary_as"),
    transpose=_transpose,
    batch=_batch,
    vma=lambda avals, params: frozenset(params["axes"]),
    keys=key_reuse.SAME,
)
