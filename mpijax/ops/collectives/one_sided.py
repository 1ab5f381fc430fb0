"""Defines `psend` and `precv`: the two halves of a `ppermute`, written separately.

All shards run one program, so each `precv` matches a `psend` before it: the first unmatched one over the same axis with
the same pairs. `paired` finds the matches in the body of a `shard_map`, and replaces each match by one exchange at the
position of the `psend`. So no rank can wait for a rank that has not reached its half.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, eval_jaxpr, map_jaxprs
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.trees import tree
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.tokens import AbstractToken, abstract_token, create_token
from mpijax.ops.collectives.permutations import check_pairs, ppermute_p
from mpijax.ops.collectives.scope import check_bound, names_of, varying, vma_with

_NO_DERIVATIVE = Unsupported("psend and precv have no derivative. Use ppermute")
_WITHIN = Unsupported("psend and precv need shard_map")
_NOT_MAPPED = Unsupported("psend and precv do not support vmap. Use ppermute")


def psend(x: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Send `x` (a pytree) along named axes. A `precv` with the same axes and pairs receives it.

    `perm` lists pairs (source, destination), as for `ppermute`. One exchange a leaf, within `shard_map`.

    Returns:
      A token for each leaf, for `precv`.

    Raises ValueError when the program is compiled if the message is never received.

    >>> mesh, rows = mpijax.make_mesh((1,), ("x",)), mpijax.P("x")
    >>> def f(x):
    ...     return lax.precv(lax.psend(x, "x", [(0, 0)]), x, "x", [(0, 0)])
    >>> mpijax.shard_map(f, mesh=mesh, in_specs=rows, out_specs=rows)(jnp.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    names, pairs = names_of(axis_name), check_pairs("psend", axis_name, perm)
    return tree.tree_map(lambda leaf: psend_p.bind(varying(leaf, names), axis_name=names, perm=pairs), x)


def precv(token: Any, out_shape: Any, axis_name: Any, perm: Sequence[tuple[int, int]]) -> Any:
    """Receives from the `psend` with the same axes and pairs; zeros on shards that nobody sends to.

    Args:
      token: the result of that `psend`, or `create_token()`.
      out_shape: has the shape and dtype of the received array.

    Raises ValueError when the program is compiled if no such `psend` precedes it; TypeError if `token` is not a
    token.

    >>> mesh, rows = mpijax.make_mesh((1,), ("x",)), mpijax.P("x")
    >>> f = lambda x: lax.precv(lax.psend(2 * x, "x", [(0, 0)]), x, "x", [(0, 0)])
    >>> mpijax.shard_map(f, mesh=mesh, in_specs=rows, out_specs=rows)(jnp.arange(3))
    Array([0, 2, 4], dtype=int32)
    """
    pairs = check_pairs("precv", axis_name, perm)
    aval = ShapedArray(out_shape.shape, out_shape.dtype)
    return precv_p.bind(token, out_shape=aval, axis_name=names_of(axis_name), perm=pairs)


def _effects(params: dict[str, Any]) -> frozenset:
    return frozenset([fx.one_sided, *(fx.NamedAxisEffect(n) for n in params["axis_name"])])


def _psend_type(x, *, axis_name, perm):
    check_bound(axis_name)
    return abstract_token


def _precv_type(token, *, out_shape, axis_name, perm):
    check_bound(axis_name)
    if not isinstance(token, AbstractToken):
        raise TypeError(
            "The first argument of precv must be a token from psend or lax.create_token(), got an array of type "
            f"{token.str_short(True)}"
        )
    return out_shape


def _precv_pretty(eqn, _names):
    shown = {**eqn.params, "out_shape": eqn.params["out_shape"].str_short(short_dtypes=False)}
    return sorted(shown.items())


psend_p = Primitive(
    "psend",
    type_rule=_psend_type,
    reference=_WITHIN,
    lower=_WITHIN,
    jvp=_NO_DERIVATIVE,
    transpose=_NO_DERIVATIVE,
    batch=_NOT_MAPPED,
    effects=_effects,
    vma=lambda avals, params: None,
)

precv_p = Primitive(
    "precv",
    type_rule=_precv_type,
    reference=_WITHIN,
    lower=_WITHIN,
    jvp=_NO_DERIVATIVE,
    transpose=_NO_DERIVATIVE,
    batch=_NOT_MAPPED,
    effects=_effects,
    vma=vma_with("axis_name"),
    pretty=_precv_pretty,
)


# ---------------------------------------------------------------- halves to pairs


def paired(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with `ppermute` in place of both halves. The axes must be in scope.

    Raises ValueError for an unmatched half.
    """
    body = _SendMatcher()
    result = trace_to_closed_jaxpr(lambda *args: body.run(closed, args), closed.in_avals)
    for (axis_name, perm), messages in body.sent.items():
        for message in messages:
            raise ValueError(
                f"psend of {typeof(message).str_short(True)} over {axis_name} with perm={perm} is never received. Call "
                "precv with the same axis_name and perm after it, in the same body of a loop, branch or function."
            )
    return result


class _SendMatcher:
    """The body of a program or loop. sent: by axes and pairs, the unreceived messages in order."""

    def __init__(self) -> None:
        self.sent: dict[tuple, list[Any]] = {}

    def run(self, closed: ClosedJaxpr, args: Sequence[Any]) -> list[Any]:
        return eval_jaxpr(closed.jaxpr, closed.consts, *args, apply=self.equation)

    def equation(self, eqn: Eqn, args: list[Any]) -> Sequence[Any]:
        primitive, params = eqn.primitive, eqn.params
        if primitive is psend_p:
            self.sent.setdefault((params["axis_name"], params["perm"]), []).append(ppermute_p.bind(*args, **params))
            return [create_token()]
        if primitive is precv_p:
            return [self.receive(**params)]
        if fx.one_sided in eqn.effects:
            if isinstance(primitive.lower, InlineJaxpr):
                return self.run(params[primitive.lower.param], args)
            params = {name: map_jaxprs(x, _paired_inside) for name, x in params.items()}
        outs = primitive.bind(*args, **params)
        return outs if primitive.multiple_results else [outs]

    def receive(self, out_shape: ShapedArray, axis_name: tuple, perm: tuple) -> Any:
        messages = self.sent.get((axis_name, perm))
        if not messages:
            raise ValueError(
                f"precv of {out_shape.str_short(True)} over {axis_name} with perm={perm} receives nothing. Call psend "
                "with the same axis_name and perm before it, in the same body of a loop, branch or function: all "
                "shards run the same program."
            )
        message = messages.pop(0)
        found = typeof(message)
        if (found.shape, found.dtype) != (out_shape.shape, out_shape.dtype):
            raise ValueError(
                f"precv expects {out_shape.str_short(True)}, but the next psend over {axis_name} with perm={perm} "
                f"sends {found.str_short(True)}. Messages arrive in the order in which they are sent."
            )
        return message


def _paired_inside(closed: ClosedJaxpr) -> ClosedJaxpr:
    return paired(closed) if fx.one_sided in closed.effects else closed
