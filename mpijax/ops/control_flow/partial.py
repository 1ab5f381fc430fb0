"""Splits a Jaxpr into the part that known arguments determine, and the rest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.programs.jaxpr import Atom, ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from mpijax.core.tracing.checks import checked
from mpijax.core.types import effects as fx
from mpijax.ops.control_flow.opening import with_open_calls


class SplitJaxpr:
    """A Jaxpr in two parts.

    `known` takes the known arguments. It returns `handed`, the values that the rest reads or returns, and the results
    marked hoistable that it determines. `rest` takes the handed values, then the other arguments. `hoisted[i]` tells
    whether `known` returns result i.

    Attributes:
      known: known arguments -> handed values, then the hoisted results.
      rest: handed values, then the unknown arguments -> the results that are not hoisted.
      num_handed: the number of handed values.
      hoisted: for each result whether `known` returns it.
    """

    __slots__ = ("known", "rest", "num_handed", "hoisted")

    def __init__(self, known: ClosedJaxpr, rest: ClosedJaxpr, num_handed: int, hoisted: list[bool]):
        self.known = known
        self.rest = rest
        self.num_handed = num_handed
        self.hoisted = hoisted


@memo_on_jaxpr
def split_known(closed: ClosedJaxpr, known_inputs: tuple[bool, ...], hoistable: tuple[bool, ...]) -> SplitJaxpr:
    """Split by known arguments. Equations that communicate or call back always stay in the rest."""
    closed = with_open_calls(closed, known_inputs)
    jaxpr = closed.jaxpr
    determined: set[Var] = set(jaxpr.constvars)
    determined.update(v for v, known in zip(jaxpr.invars, known_inputs, strict=True) if known)

    def is_known(atom: Atom) -> bool:
        return type(atom) is Literal or atom in determined

    known_eqns: list[Eqn] = []
    rest_eqns: list[Eqn] = []
    for eqn in jaxpr.eqns:
        if all(map(is_known, eqn.invars)) and not fx.pins(eqn.effects):
            known_eqns.append(eqn)
            determined.update(eqn.outvars)
        else:
            rest_eqns.append(eqn)
    hoisted = [may and is_known(v) for v, may in zip(jaxpr.outvars, hoistable, strict=True)]
    results = [v for v, h in zip(jaxpr.outvars, hoisted, strict=True) if not h]
    rest_eqns = _live(rest_eqns, results)
    rest_args = [v for v, known in zip(jaxpr.invars, known_inputs, strict=True) if not known]
    handed = _in_order_of_need(rest_eqns, rest_args, results, determined)
    constants = dict(zip(jaxpr.constvars, closed.consts, strict=True))
    handed_vars = [v for v in handed if v not in constants]
    rest_consts = [v for v in handed if v in constants]
    outs = [*handed_vars, *(v for v, h in zip(jaxpr.outvars, hoisted, strict=True) if h)]
    known_eqns = _live(known_eqns, outs)
    known_consts = _read_from(known_eqns, outs, set(constants))
    debug = jaxpr.debug_info
    known_args = [v for v, known in zip(jaxpr.invars, known_inputs, strict=True) if known]
    known = checked(Jaxpr(known_consts, known_args, outs, known_eqns, debug_info=debug))
    rest = checked(Jaxpr(rest_consts, handed_vars + rest_args, results, rest_eqns, debug_info=debug))
    return SplitJaxpr(
        ClosedJaxpr(known, [constants[v] for v in known_consts]),
        ClosedJaxpr(rest, [constants[v] for v in rest_consts]),
        len(handed_vars),
        hoisted,
    )


def _live(eqns: Sequence[Eqn], results: Sequence[Atom]) -> list[Eqn]:
    """The equations that results or effects need."""
    needed = {v for v in results if type(v) is not Literal}
    kept: list[Eqn] = []
    for eqn in reversed(eqns):
        if fx.pins(eqn.effects) or any(v in needed for v in eqn.outvars):
            kept.append(eqn)
            needed.update(v for v in eqn.invars if type(v) is not Literal)
    return kept[::-1]


def _read_from(eqns: Sequence[Eqn], results: Sequence[Atom], among: set[Var]) -> list[Var]:
    """The variables of a set that equations or results read, in the order of first use."""
    atoms = [v for eqn in eqns for v in eqn.invars] + list(results)
    return list(dict.fromkeys(v for v in atoms if type(v) is not Literal and v in among))


def _in_order_of_need(eqns: Sequence[Eqn], args: Sequence[Var], results: Sequence[Atom], among: set[Var]) -> list[Var]:
    """The variables of a set that equations or results read, in JAX's order.

    JAX sorts topologically from the results: it visits a value after all its readers, the last one found
    first. The wanted values are listed from the last visited to the first.
    """
    made_by = {v: eqn for eqn in eqns for v in eqn.outvars}
    uses: dict[Eqn, list] = {}

    def parents(node) -> list:
        eqn = made_by.get(node)
        if eqn is None:
            return []
        if eqn not in uses:  # each read of a wanted value is a node
            uses[eqn] = [(v,) if v in among else v for v in eqn.invars if type(v) is not Literal]
        return uses[eqn]

    ends: list = [*args, *((v,) if v in among else v for v in results if type(v) is not Literal)]
    ends = list({id(node): node for node in ends}.values())
    waiting: Counter[int] = Counter()
    stack = list(ends)
    while stack:
        node = stack.pop()
        waiting[id(node)] += 1
        if waiting[id(node)] == 1:
            stack.extend(parents(node))
    for node in ends:
        waiting[id(node)] -= 1
    ready = [node for node in ends if not waiting[id(node)]]
    visited = []
    while ready:
        node = ready.pop()
        visited.append(node)
        for parent in parents(node):
            if waiting[id(parent)] == 1:
                ready.append(parent)
            else:
                waiting[id(parent)] -= 1
    found = [node[0] for node in reversed(visited) if isinstance(node, tuple)]
    return list(dict.fromkeys([*found, *_read_from(eqns, results, among)]))
