"""Names for values, which policies of `checkpoint` refer to."""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.trees.tree import tree_map
from mpijax.transforms import key_reuse


def checkpoint_name(x: Any, name: str) -> Any:
    """The identity on a pytree of arrays; policies such as `save_only_these_names(name)` see the name.

    Tangents and cotangents get no name. The operation is free in a compiled program.

    >>> keep = mpijax.checkpoint_policies.save_only_these_names("angle")
    >>> f = mpijax.checkpoint(lambda x: jnp.sin(mpijax.ad_checkpoint.checkpoint_name(x * 2, "angle")), policy=keep)
    >>> mpijax.grad(f)(jnp.float32(0))
    Array(2., dtype=float32)
    """
    return tree_map(lambda leaf: name_p.bind(leaf, name=name), x)


def _jvp(primals, tangents, *, name):
    return name_p.bind(primals[0], name=name), tangents[0]


name_p: Primitive = Primitive(
    "name",
    type_rule=lambda aval, *, name: aval,
    reference=lambda x, *, name: x,
    lower=Decompose(lambda x, *, name: x),
    jvp=_jvp,
    transpose=Unsupported("tangents have no name, so there is nothing to transpose"),
    batch=lambda axis, args, dims, *, name: (name_p.bind(args[0], name=name), dims[0]),
    keys=key_reuse.SAME,
    value_name=lambda params: params["name"],
    origin=lambda params: f"named '{params['name']}'",
)
name_p.impl = lambda x, *, name: x
