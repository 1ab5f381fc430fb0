"""Programs without types of libraries, made of programs with them: the compiler sees the values they consist of.

An interpreter evaluates the program with values put together of traced parts. An operation of a library computes with
the parts; an operation with a program inside (a loop, a call) becomes one with the lowered program inside. What is in
a value that changes goes in with the arguments, and comes out before the results.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, NamedTuple

from mpijax.core.base import provided
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.state import state
from mpijax.core.programs.jaxpr import ClosedJaxpr, eval_jaxpr, subjaxprs
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.tracing.trace import Trace, current_trace
from mpijax.core.trees import tree
from mpijax.core.types.typeof import typeof


class FlatTree(NamedTuple):
    """Leaves and the structure of a pytree."""

    leaves: list[Any]
    structure: Any

    @staticmethod
    def flatten(value: Any) -> FlatTree:
        return FlatTree(*tree.tree_flatten(value))

    def unflatten(self) -> Any:
        return tree.tree_unflatten(self.structure, self.leaves)


class LowerTrace(Trace):
    """Computes with the parts of values, in the parent."""

    __slots__ = ()

    def records(self, args: Any) -> bool:
        return self.parent.records(args)  # type: ignore[union-attr]

    def process_primitive(self, primitive: Any, args: Any, params: dict[str, Any]) -> Any:
        if primitive.is_expanded:
            return primitive.to_lojax(*args, **params)
        if any(typeof(x).is_high for x in args) or any(j.is_high for j in subjaxprs(params)):
            return provided.lowered_call(primitive, args, params)
        with current_trace(self.parent) as parent:  # type: ignore[arg-type]
            return parent.process_primitive(primitive, args, params)

    def process_custom_call(self, call: Any, args: Any) -> Any:
        return call.fun(*args)  # nobody differentiates or vectorizes what the compiler gets


# ---------------------------------------------------------------- values and their parts


class Parts(NamedTuple):
    """What operands consist of.

    values: of all operands, in order. widths: how many belong to each. states: of operands that change, what is known
    of them (`cur_qdd`), None for others.
    """

    values: list[Any]
    widths: list[int]
    states: tuple[Any, ...]

    @staticmethod
    def of(args: Sequence[Any]) -> Parts:
        values: list[Any] = []
        widths, states = [], []
        for x in args:
            aval: Any = typeof(x)
            known = x.cur_qdd() if aval.has_qdd else None
            parts = aval.read_loval_in(known, x) if aval.has_qdd else aval.lower_val(x)
            values += parts
            widths.append(len(parts))
            states.append(known)
        return Parts(values, widths, tuple(states))


def lower_values(avals: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    """The values that values of these types, which do not change, consist of."""
    return [part for aval, x in zip(avals, values, strict=True) for part in aval.lower_val(x)]


def raise_values(avals: Sequence[Any], parts: Sequence[Any]) -> list[Any]:
    """The values of these types that consist of `parts`."""
    rest = iter(parts)
    return [aval.raise_val(*islice(rest, len(aval.lo_ty()))) for aval in avals]


def _base(aval: Any) -> Any:
    """A type without what is known of one value."""
    return getattr(aval, "aval", aval) if aval.has_qdd else aval


# ---------------------------------------------------------------- programs


class Change(NamedTuple):
    """What a program does to an argument that changes: which argument, what is known of it then, and what comes out."""

    argument: int
    aval: Any
    known: Any
    structure: Any
    avals: tuple[Any, ...]


class LoweredJaxpr(NamedTuple):
    """A lowered program, whose first results are what is in arguments that change, and how to write that back."""

    jaxpr: ClosedJaxpr
    changes: list[Change]

    @property
    def counts(self) -> list[int]:
        """How many results belong to each argument that changes."""
        return [len(c.avals) for c in self.changes]

    def write_back(self, args: Sequence[Any], outs: Sequence[Any]) -> list[Any]:
        """Change the arguments as the program did; the other results."""
        rest = iter(outs)
        for c in self.changes:
            leaves = list(islice(rest, len(c.avals)))
            c.aval.update_from_loval2(c.known, args[c.argument], FlatTree(leaves, c.structure))
        return list(rest)


def lower_jaxpr(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The program on the values that arguments and results consist of; arguments do not change."""
    return lowered(closed, (None,) * len(closed.in_avals)).jaxpr


@memo_on_jaxpr
def lowered(closed: ClosedJaxpr, states: tuple[Any, ...]) -> LoweredJaxpr:
    """The program on the values that arguments and results consist of; `states` as in `Parts`."""
    avals = list(map(_base, closed.in_avals))
    types = [a.lo_ty_qdd(s) if a.has_qdd else a.lo_ty() for a, s in zip(avals, states, strict=True)]
    changes: list[Change] = []

    def fun(*parts: Any) -> list[Any]:
        rest = iter(parts)
        given = [list(islice(rest, len(t))) for t in types]
        with current_trace(LowerTrace(state.trace)):
            args = [
                a.new_from_loval(s, *xs) if a.has_qdd else a.raise_val(*xs)
                for a, s, xs in zip(avals, states, given, strict=True)
            ]
            outs = eval_jaxpr(closed.jaxpr, closed.consts, *args)
            changed = []
            for i, (aval, x) in enumerate(zip(avals, args, strict=True)):
                if aval.has_qdd:
                    leaves, structure = aval.read_loval_out(x.cur_qdd(), x)
                    changes.append(Change(i, aval, x.cur_qdd(), structure, tuple(map(typeof, leaves))))
                    changed += leaves
            return [*changed, *lower_values(closed.out_avals, outs)]

    jaxpr = trace_to_closed_jaxpr(fun, [t for ts in types for t in ts], closed.jaxpr.debug_info)
    return LoweredJaxpr(jaxpr, changes)


def run_high(run: Callable, args: Sequence[Any], jaxpr: ClosedJaxpr, **params: Any) -> list[Any]:
    """`run(*args, jaxpr=jaxpr, ...)`, a call of a program, by the program without types of libraries."""
    parts = Parts.of(args)
    low = lowered(jaxpr, parts.states)
    flags = params.get("donated_invars") or ()
    if flags:
        params["donated_invars"] = repeated(flags, parts.widths)
    return raise_values(jaxpr.out_avals, low.write_back(args, run(*parts.values, jaxpr=low.jaxpr, **params)))


def repeated(flags: Sequence[Any], widths: Sequence[int]) -> tuple[Any, ...]:
    """The flag of each operand for each of its parts."""
    return tuple(flag for flag, width in zip(flags, widths, strict=True) for _ in range(width))
