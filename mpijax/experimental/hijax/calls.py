"""Operations with programs inside (calls, branches, loops) on the values that operands consist of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.programs.jaxpr import ClosedJaxpr, Var
from mpijax.core.types.typeof import typeof
from mpijax.spmd.shard_map_rules import inside
from mpijax.transforms.high_programs import LoweredJaxpr, Parts, lower_jaxpr, lowered, raise_values, repeated, run_high


def lowered_call(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> Any:
    """Apply an operation with programs inside, in the current trace, to the values that its operands consist of."""
    rule = CALLS.get(primitive.key)
    if rule is None:
        raise NotImplementedError(
            f"{primitive} does not support values of types that libraries define. Pass the arrays that they contain."
        )
    return rule(primitive, args, params)


def _jit(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    return run_high(primitive.bind, args, **params)


def _remat(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    cse = params["prevent_cse"]
    flags = cse if isinstance(cse, bool) else repeated(cse, Parts.of(args).widths)
    return run_high(primitive.bind, args, **{**params, "prevent_cse": flags})


def _normal(known: Any) -> Any:
    """What is known of a value, without what depends on how it was made, such as weak types."""
    return known.normalize() if hasattr(known, "normalize") else known


def _cond(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    index, *operands = args
    parts = Parts.of(operands)
    branches = [lowered(b, parts.states) for b in params["branches"]]
    first, *others = branches
    for other in others:
        if [_normal(c.known) for c in other.changes] != [_normal(c.known) for c in first.changes]:
            raise TypeError(
                "cond: after the branches, the mutable values have different types: "
                f"{[c.known for c in first.changes]} and {[c.known for c in other.changes]}. Each branch must set "
                "values of the same types."
            )
    changed = {**params, "branches": tuple(b.jaxpr for b in branches)}
    outs = first.write_back(operands, primitive.bind(index, *parts.values, **changed))
    return raise_values(params["branches"][0].out_avals, outs)


def _shard_map(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    """The operands are arrays: see `spmd/shard_map_parts.py`."""
    with inside(params):
        body = lower_jaxpr(params["jaxpr"])
    return primitive.bind(*args, **{**params, "jaxpr": body})


# ---------------------------------------------------------------- loops


def _split(items: Sequence[Any], widths: Sequence[int]) -> list[list[Any]]:
    """Consecutive parts of the given sizes."""
    found, start = [], 0
    for width in widths:
        found.append(list(items[start : start + width]))
        start += width
    return found


def _flat(groups: Sequence[Sequence[Any]]) -> list[Any]:
    return [x for group in groups for x in group]


def _check_unchanged(low: LoweredJaxpr, states: Sequence[Any]) -> None:
    """Raise TypeError if an iteration of a loop leaves a value that changes with another type."""
    for c in low.changes:
        before = states[c.argument]
        if not c.aval.is_writer and _normal(c.known) != _normal(before):
            raise TypeError(
                f"type-changing mutations not allowed in loops: an iteration changes a value of type {c.aval} from "
                f"{before} to {c.known}. Set values of the same types in each iteration."
            )


def _carrying(low: LoweredJaxpr, widths: Sequence[int], num_consts: int) -> tuple[ClosedJaxpr, list[int], int]:
    """A body that carries what is in its consts that change; the new order of operands, and how many are consts.

    Before: consts, carry, xs -> changes, carry, ys. After: other consts; values that change, carry, xs -> values that
    change, carry, ys, what was added by writers.
    """
    moved = [c.argument for c in low.changes if not c.aval.is_writer]
    fixed = [i for i in range(num_consts) if i not in moved]
    order = [*fixed, *moved, *range(num_consts, len(widths))]
    jaxpr = low.jaxpr.jaxpr
    groups = _split(jaxpr.invars, widths)
    *changed, rest = _split(jaxpr.outvars, [*low.counts, len(jaxpr.outvars) - sum(low.counts)])
    carried = _flat([g for g, c in zip(changed, low.changes, strict=True) if not c.aval.is_writer])
    added = _flat([g for g, c in zip(changed, low.changes, strict=True) if c.aval.is_writer])
    body = jaxpr.replace(invars=_flat([groups[i] for i in order]), outvars=[*carried, *rest, *added])
    return ClosedJaxpr(body, low.jaxpr.consts), order, len(fixed)


def _in_order(low: LoweredJaxpr, outs: Sequence[Any]) -> list[Any]:
    """The results of a loop with such a body, those of values that change first and in their order."""
    carried = sum(len(c.avals) for c in low.changes if not c.aval.is_writer)
    added = sum(low.counts) - carried
    carries, rest, writes = _split(outs, [carried, len(outs) - carried - added, added])
    first, last = iter(carries), iter(writes)
    changed = [next(last if c.aval.is_writer else first) for c in low.changes for _ in c.avals]
    return [*changed, *rest]


def _scan(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    num_consts, num_carry = params["num_consts"], params["num_carry"]
    parts = Parts.of(args)
    low = lowered(params["jaxpr"], parts.states)
    _check_unchanged(low, parts.states)
    body, order, fixed = _carrying(low, parts.widths, num_consts)
    groups = _split(parts.values, parts.widths)
    operands = [groups[i] for i in order]
    last = num_consts + num_carry
    changed = {
        **params,
        "jaxpr": body,
        "num_consts": len(_flat(operands[:fixed])),
        "num_carry": len(_flat(operands[fixed:last])),
    }
    outs = low.write_back(args, _in_order(low, primitive.bind(*_flat(operands), **changed)))
    # Values that are put together consist of as many arrays as one of them.
    return raise_values(params["jaxpr"].out_avals, outs)


def _while(primitive: Any, args: Sequence[Any], params: dict[str, Any]) -> list[Any]:
    cond_count, body_count = params["cond_nconsts"], params["body_nconsts"]
    if any(typeof(x).has_qdd for x in args[:cond_count]):
        raise NotImplementedError("while_loop: cond_fun reads a mutable value. Put what it needs into the carry.")
    cond_args, body_args = args[:cond_count], args[cond_count:]
    cond_parts, parts = Parts.of(cond_args), Parts.of(body_args)
    low = lowered(params["body_jaxpr"], parts.states)
    _check_unchanged(low, parts.states)
    body, order, fixed = _carrying(low, parts.widths, body_count)
    groups = _split(parts.values, parts.widths)
    operands = [groups[i] for i in order]
    cond = lower_jaxpr(params["cond_jaxpr"])
    num_fixed, num_moved = len(_flat(operands[:fixed])), len(_flat(operands[fixed:body_count]))
    changed = {
        "cond_jaxpr": _ignoring(cond, len(cond_parts.values), body.in_avals[num_fixed : num_fixed + num_moved]),
        "cond_nconsts": len(cond_parts.values),
        "body_jaxpr": body,
        "body_nconsts": num_fixed,
    }
    outs = _in_order(low, primitive.bind(*cond_parts.values, *_flat(operands), **changed))
    return raise_values(params["body_jaxpr"].out_avals, low.write_back(body_args, outs))


def _ignoring(cond: ClosedJaxpr, at: int, avals: Sequence[Any]) -> ClosedJaxpr:
    """A condition with further arguments that it does not read."""
    if not avals:
        return cond
    invars = cond.jaxpr.invars
    return ClosedJaxpr(cond.jaxpr.replace(invars=[*invars[:at], *map(Var, avals), *invars[at:]]), cond.consts)


# By the keys of primitives.
CALLS: dict[str, Callable[[Any, Sequence[Any], dict[str, Any]], list[Any]]] = {
    "jit": _jit,
    "remat2": _remat,
    "scan": _scan,
    "cond": _cond,
    "while": _while,
    "batched_while": _while,
    "shard_map": _shard_map,
}
