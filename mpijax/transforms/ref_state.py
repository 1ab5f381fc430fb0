"""Passes mutable array references through traced functions: values go in, written values come out.

A traced program takes the values of the references that it reads as arguments, and returns the values that it wrote
(see `core.tracing.jaxpr_trace.trace_to_jaxpr`). `jit` calls such programs. Loops, branches and so on trace a function
again with the values as additional arguments and results, so they need no rules for references.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax.core.base import config, provided
from mpijax.core.base.state import state
from mpijax.core.programs.debug_info import DebugInfo
from mpijax.core.programs.jaxpr import Jaxpr, subjaxprs
from mpijax.core.tracing.refs import Ref, read, write
from mpijax.core.tracing.trace import EVAL
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.trees import tree
from mpijax.transforms.flat import named_like


def is_ref(x: Any) -> bool:
    return type(x) is Ref


def has_refs(leaves: Sequence[Any]) -> bool:
    """Whether references are among the leaves of arguments."""
    return Ref in map(type, leaves)


def has_rules(jaxpr: Jaxpr) -> bool:
    """Whether a program contains user-defined backward rules, which may keep references."""
    return any(eqn.primitive.has_users_transpose or any(map(has_rules, subjaxprs(eqn.params))) for eqn in jaxpr.eqns)


def refuse_refs(leaves: Sequence[Any], what: str) -> None:
    """Raise ValueError for references among the arguments to differentiate with respect to."""
    for x in filter(is_ref, leaves):
        raise ValueError(
            f"{what} differentiates with respect to arrays, but got a mutable array reference of type {x.aval}. "
            "Close over the reference, or pass its value (ref[...])."
        )


def values_of(operands: Sequence[Any]) -> list[Any]:
    """Operands with references replaced by their values in the current trace."""
    return [read(x) if type(x) is Ref else x for x in operands]


def may_be_kept(consts: Sequence[Any]) -> bool:
    """Whether a program with these constants can be cached for later calls: no constant belongs to a trace."""
    return not any(isinstance(c, Tracer) or (type(c) is Ref and c.home is not EVAL) for c in consts)


def check_aliases(consts: Sequence[Any], leaves: Sequence[Any], debug: Callable[[], DebugInfo]) -> None:
    """Raise ValueError if a function gets a reference twice: as two arguments, or as argument and closed over."""
    seen: dict[Ref, int] = {}
    closed_over = {c for c in consts if type(c) is Ref}
    for i, x in enumerate(leaves):
        if type(x) is not Ref:
            continue
        info = debug()
        names = [*(info.arg_names or ())] or [f"flat index {k}" for k in range(len(leaves))]
        where = f"when tracing {info.func_src_info} for {info.traced_for}"
        if x in closed_over:
            raise ValueError(
                f"{where}, a mutable array reference of type {x.aval} was both closed over and passed as the argument "
                f"{names[i]}"
            )
        first = seen.setdefault(x, i)
        if first != i:
            raise ValueError(
                "only one reference to a mutable array may be passed as an argument to a function, but "
                f"{where} the mutable array reference of type {x.aval} appeared at both {names[first]} and {names[i]}."
            )


# ---------------------------------------------------------------- calls of programs


def call(
    bind: Callable[[list[Any], list[bool]], list[Any]], consts: Sequence[Any], leaves: Sequence[Any], written: Sequence
) -> list[Any]:
    """Call a program that takes `consts` and `leaves`, and returns the values `written` after its other results.

    bind: `(operands, which of them are donated) -> results`. Outside all traces, the memory of written references is
    reused for their new values. If other code may read that memory, it is copied first.
    """
    operands = [*consts, *leaves]
    targets = [leaves[w] if type(w) is int else w for w in written]
    given_away = [False] * len(operands)
    values = values_of(operands)
    if state.trace is EVAL:
        renewed = set(targets)
        for i, x in enumerate(operands):
            if type(x) is Ref and x in renewed and _has_memory(x) and not values[i].committed:
                given_away[i] = True
                values[i] = provided.basic.copied(values[i]) if x.is_shared else values[i]
    outs = bind(values, given_away)
    count = len(outs) - len(targets)
    results, finals = outs[:count], outs[count:]
    for ref, value in zip(targets, finals, strict=True):
        write(ref, value)
    if any(given_away):
        _claim(targets, [*results, *(v for v, gone in zip(values, given_away, strict=True) if not gone)])
    return results


def _has_memory(ref: Ref) -> bool:
    """Whether the value of a reference is one buffer."""
    return not ref.aval.inner_aval.is_high and isinstance(ref.dtype, np.dtype)


def _claim(refs: Sequence[Ref], others: Sequence[Any]) -> None:
    """Record which references own their memory: a program may return one buffer twice."""
    taken = [x.unsafe_buffer_pointer() for x in others if hasattr(x, "unsafe_buffer_pointer")]
    refs = list(filter(_has_memory, refs))
    own = [read(ref).unsafe_buffer_pointer() for ref in refs]
    for ref, pointer in zip(refs, own, strict=True):
        ref.is_shared = pointer in taken or own.count(pointer) > 1


# ---------------------------------------------------------------- functions with state passed


def made_of(fun: Callable, known: weakref.WeakKeyDictionary, make: Callable, key: Any = None) -> Callable:
    """`make` of a reference to `fun`, cached in `known` while `fun` is alive, so that it is traced once.

    The cached object must not hold `fun`.
    """
    try:
        table = known.setdefault(fun, {})
        found = table.get(key)
        if found is None:
            found = table[key] = make(weakref.ref(fun))
        return found
    except TypeError:  # `fun` is not hashable, or has no weak references
        return make(lambda: fun)


_state_passing: weakref.WeakKeyDictionary[Callable, dict] = weakref.WeakKeyDictionary()


def state_passing(fun: Callable, refs: Sequence[Ref]) -> Callable:
    """`fun` with the values of outside references as arguments: `(values, *args) -> (new values, result)`.

    Returns the same function object for the same `fun` and `refs`.
    """

    def make(reference):
        def explicit(values, *args, **kwargs):
            with state.trace.holding(refs, values) as new_values:  # type: ignore[attr-defined]
                out = reference()(*args, **kwargs)
            return new_values, out

        return explicit

    return made_of(fun, _state_passing, make, tuple(refs))


def values_in(args: Any) -> tuple[Any, list[Ref]]:
    """A pytree with values in place of references, and the list of references."""
    leaves, structure = tree.tree_flatten(args)
    return tree.tree_unflatten(structure, values_of(leaves)), list(filter(is_ref, leaves))


def refs_in(values: Any, args: Any) -> tuple[Any, list[Ref]]:
    """A pytree of values with new references in the current trace where `args` has references, and the list of them."""
    leaves, structure = tree.tree_flatten(args)
    inner = [
        Ref.of(value, x.aval.kind) if is_ref(x) else value
        for value, x in zip(structure.flatten_up_to(values), leaves, strict=True)
    ]
    return tree.tree_unflatten(structure, inner), list(filter(is_ref, inner))


def of_values(fun: Callable, args: Any) -> Callable:
    """`fun` with values in place of the references in its arguments `args`: `(*values) -> (result, new values)`."""

    @named_like(fun)
    def explicit(*values):
        given, inner = refs_in(values, args)
        out = fun(*given)
        return out, values_of(inner)

    return explicit


class CarriedRefs:
    """The carry of a loop with references among its leaves: these stay in place, and the loop carries the other leaves.

    Raises ValueError while `jax_mutable_array_checks` is on.
    """

    def __init__(self, init: Any, loop: str):
        if config.mutable_array_checks.value:
            raise ValueError(
                f"{loop}: the carry contains a reference, and mutable array references cannot be returned. Close over "
                "the reference, or scan over its slices (xs)."
            )
        self.loop = loop
        self.leaves, self.structure = tree.tree_flatten(init)

    def values(self, carry: Any) -> list[Any]:
        """The leaves that are no references; raises ValueError if a reference is not in its place."""
        leaves, structure = tree.tree_flatten(carry)
        pairs = list(zip(leaves, self.leaves, strict=False))
        if structure != self.structure or any(x is not own for x, own in pairs if is_ref(x) or is_ref(own)):
            raise ValueError(
                f"{self.loop}: the body must return the references that it carries where it gets them. Got "
                f"{carry}, for {tree.tree_unflatten(self.structure, self.leaves)}."
            )
        return [x for x in leaves if not is_ref(x)]

    def carry(self, values: Sequence[Any]) -> Any:
        """The carry with these values."""
        rest = iter(values)
        return tree.tree_unflatten(self.structure, [x if is_ref(x) else next(rest) for x in self.leaves])


def write_all(refs: Sequence[Ref], values: Sequence[Any]) -> None:
    """Write new values to references in the current trace."""
    for ref, value in zip(refs, values, strict=True):
        write(ref, value)
