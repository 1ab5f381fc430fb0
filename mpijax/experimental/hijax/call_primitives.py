"""The primitives that apply a `VJPHiPrimitive`, and its derivative where that is a backward rule."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.core.programs.jaxpr import Eqn
from mpijax.core.rules.lowering import Decompose
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.sharding_types import by_type_rule
from mpijax.core.trees import tree
from mpijax.core.types import effects as fx
from mpijax.experimental.hijax.accumulators import NullAccum, ValAccum
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero


def _leaves(structure: Any, value: Any) -> list[Any]:
    """The leaves of a rule's result, which has the structure given; symbolic zeros and None are leaves there."""
    return structure.flatten_up_to(value)


def _nonzero(tangents: Sequence[Any]) -> tuple[bool, ...]:
    return tuple(type(t) is not Zero for t in tangents)


class _Expanded(Primitive):
    """A primitive that the operation itself expands."""

    is_expanded = True

    def to_lojax(self, *args: Any, **params: Any) -> Any:
        return self.reference(*args, **params)


def _expand(*args: Any, _prim: Any) -> list[Any]:
    return _leaves(_prim.out_tree, _prim.expand(*tree.tree_unflatten(_prim.in_tree, args)))


def _type_rule(*avals: Any, _prim: Any) -> list[Any]:
    for given, taken in zip(avals, _prim.in_avals_flat, strict=True):
        if given.form != taken.form:
            raise TypeError(f"{_prim} takes {taken.str_short(True)}, got {given.str_short(True)}")
    return _prim.out_avals_flat


def _jvp(primals: Sequence[Any], tangents: Sequence[Any], *, _prim: Any) -> tuple[list[Any], list[Any]]:
    given = (tree.tree_unflatten(_prim.in_tree, list(xs)) for xs in (primals, tangents))
    out, out_tangent = _prim.jvp(*given)
    return _leaves(_prim.out_tree, out), _leaves(_prim.out_tree, out_tangent)


def _linearize(trace: Any, primals: Sequence[Any], tangents: Sequence[Any], params: dict[str, Any]) -> Any:
    """By the rule for gradients, or, if the derivative is to be evaluated, by that for `linearize`, else by another."""
    prim = params["_prim"]
    rules = ("vjp_fwd", "lin", "jvp") if trace.backward else ("lin", "jvp", "vjp_fwd")
    rule = next(filter(prim.overrides, rules), rules[0])
    if rule == "jvp":
        return _jvp(primals, tangents, **params)
    backward = rule == "vjp_fwd"
    nonzero = _nonzero(tangents)
    args = tree.tree_unflatten(prim.in_tree, primals)
    flags = tree.tree_unflatten(prim.in_tree, nonzero)
    out, residuals, *said = prim.vjp_fwd(flags, *args) if backward else prim.lin(flags, *args)
    outs = _leaves(prim.out_tree, out)
    if backward:
        flat, structure = tree.tree_flatten(residuals)
        live = [t for t in tangents if type(t) is not Zero]
        linear = trace.bind_linear(
            call_hi_primitive_linearized_p, [*flat, *live],
            {"_prim": prim, "residuals_tree": structure, "nz_in_flat": nonzero},
        )  # fmt: skip
    else:
        linear = _leaves(prim.out_tree, prim.linearized(residuals, *tree.tree_unflatten(prim.in_tree, tangents)))
    nonzero_out = tree.broadcast_prefix(said[0], out) if said else [True] * len(outs)
    zeros = [Zero(a.to_tangent_aval()) for a in prim.out_avals_flat]
    return outs, [
        t if nz and not zero.aval.has_no_tangent else zero
        for t, nz, zero in zip(linear, nonzero_out, zeros, strict=True)
    ]


def _gathered(accumulators: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """The cotangents of the operands that are linear; None for the others."""
    return [a.value if is_undefined_primal(x) else None for a, x in zip(accumulators, args, strict=True)]


def _accumulator(x: Any) -> Any:
    return ValAccum(x.aval.to_cotangent_aval()) if is_undefined_primal(x) else x


def _transpose(cts: Sequence[Any], *args: Any, _prim: Any) -> list[Any]:
    given = list(map(_accumulator, args))
    _prim.transpose(tree.tree_unflatten(_prim.out_tree, cts), *tree.tree_unflatten(_prim.in_tree, given))
    return _gathered(given, args)


def _batch(axis: Any, args: Sequence[Any], dims: Sequence[Any], *, _prim: Any) -> tuple[list[Any], list[Any]]:
    given = (tree.tree_unflatten(_prim.in_tree, list(xs)) for xs in (args, dims))
    out, out_dims = _prim.batch(axis, *given)
    return _leaves(_prim.out_tree, out), _leaves(_prim.out_tree, out_dims)


def _dce(used: list[bool], eqn: Eqn) -> Eqn | None:
    prim = eqn.params["_prim"]
    used_in, given_out, kept = prim.dce(tree.tree_unflatten(prim.out_tree, used))
    if kept is prim and used_in is True and given_out is True:
        return eqn
    if kept is None:
        return None
    ins, outs = tree.broadcast_prefix(used_in, prim.in_avals), tree.broadcast_prefix(given_out, prim.out_aval)
    return eqn.replace(
        invars=[v for v, u in zip(eqn.invars, ins, strict=True) if u],
        outvars=[v for v, u in zip(eqn.outvars, outs, strict=True) if u],
        params={"_prim": kept},
    )


call_hi_primitive_p = _Expanded(
    "call_hi_primitive",
    type_rule=_type_rule,
    reference=_expand,
    lower=Decompose(_expand),
    jvp=_jvp,
    transpose=_transpose,
    batch=_batch,
    multiple_results=True,
    effects=lambda params: frozenset({fx.sink, *params["_prim"].effects}) if params["_prim"].effects else fx.no_effects,
    dce=_dce,
    linearize=_linearize,
    vma=lambda avals, params: None,
    sharding_type=by_type_rule,
    register=False,
)
call_hi_primitive_p.impl = _expand


# ---------------------------------------------------------------- backward rules


def _no_forward_mode(*_args: Any, _prim: Any, **_params: Any) -> Any:
    raise TypeError(
        f"can't apply forward-mode autodiff to {type(_prim).__name__}, which defines vjp_fwd only. Define jvp, or lin "
        "and linearized."
    )


def _linear_types(*_avals: Any, _prim: Any, **_params: Any) -> list[Any]:
    return [a.to_tangent_aval() for a in _prim.out_avals_flat]


def _linear_transpose(
    cts: Sequence[Any], *args: Any, _prim: Any, residuals_tree: Any, nz_in_flat: Sequence[bool]
) -> list[Any]:
    count = residuals_tree.num_leaves
    accumulators = list(map(_accumulator, args[count:]))
    rest = iter(accumulators)
    full = [
        next(rest) if nz else NullAccum(a.to_cotangent_aval())
        for nz, a in zip(nz_in_flat, _prim.in_avals_flat, strict=True)
    ]
    residuals = tree.tree_unflatten(residuals_tree, args[:count])
    _prim.vjp_bwd(
        residuals, tree.tree_unflatten(_prim.out_tree, cts), *tree.tree_unflatten(_prim.in_tree, full)
    )
    return [None] * count + _gathered(accumulators, args[count:])


def _linear_pretty(eqn: Eqn, _names: Any) -> list[tuple[str, Any]]:
    shown = {"_prim": type(eqn.params["_prim"]).__name__, "residuals_tree": "..."}
    return sorted({**eqn.params, **shown}.items())


call_hi_primitive_linearized_p = _Expanded(
    "call_hi_primitive_linearized",
    type_rule=_linear_types,
    reference=_no_forward_mode,
    lower=Decompose(_no_forward_mode),
    jvp=_no_forward_mode,
    transpose=_linear_transpose,
    batch=_no_forward_mode,
    multiple_results=True,
    pretty=_linear_pretty,
    vma=lambda avals, params: None,
    sharding_type=by_type_rule,
    register=False,
)
call_hi_primitive_linearized_p.impl = _no_forward_mode
