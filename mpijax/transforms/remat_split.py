"""Splits a differentiated function under `checkpoint` into kept values and recomputed values."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.source import NO_SCOPES, sources_of
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var, dead_code, eval_jaxpr
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.tracing.checks import checked
from mpijax.core.tracing.jaxpr_trace import trace_to_closed_jaxpr
from mpijax.core.types import effects as fx
from mpijax.transforms.linearize import LinearizedJaxpr, linearize_jaxpr
from mpijax.transforms.policies import keeps, nothing_saveable

# The scope of operations that the derivative computes again.
_AGAIN = NO_SCOPES.extend("rematted_computation")


class CheckpointedJaxprs:
    """A Jaxpr under `checkpoint` and its derivative.

    known: takes all arguments; returns the results, then the kept values.
    staged: takes the kept values, the arguments at `primal_inputs`, and the nonzero tangents at `tangent_inputs`. It
      recomputes all other values that it needs, and returns the nonzero tangents.
    """

    __slots__ = ("known", "staged", "primal_inputs", "tangent_inputs", "nonzero_out")

    def __init__(self, known: ClosedJaxpr, staged: ClosedJaxpr, primal_inputs, tangent_inputs, nonzero_out):
        self.known = known
        self.staged = staged
        self.primal_inputs: list[int] = primal_inputs
        self.tangent_inputs: list[int] = tangent_inputs
        self.nonzero_out: list[bool] = nonzero_out


@memo_on_jaxpr
def split_jaxpr(closed: ClosedJaxpr, nonzero: tuple[bool, ...], policy: Callable | None) -> CheckpointedJaxprs:
    """Split a Jaxpr into the part computed once and the derivative with respect to the arguments marked `nonzero`."""
    # The linear part is a program by itself, which forward mode evaluates.
    halves = linearize_jaxpr(closed, nonzero, False, True, False)
    primal = halves.primal
    _refuse_side_effects(primal.jaxpr)
    other: dict[Eqn, Eqn] = {}
    kept: set[Var] = set()
    if policy not in (None, nothing_saveable):
        primal, other, kept = _keeping_inside(_flattened(primal), policy)
    count = len(halves.nonzero_out)
    policy = policy or nothing_saveable
    kept |= _kept_values(primal.jaxpr, policy)
    linear, tangents = _linear_part(halves, primal.jaxpr, count)
    again = list(map(_named, _computed_again(primal.jaxpr, [*linear.eqns, linear], kept, policy, other)))
    body = Jaxpr([], [], linear.outvars, _in_turn(again, linear.eqns))
    readers: list[Eqn | Jaxpr] = [*body.eqns, body]
    read = list(dict.fromkeys(v for e in readers for v in _reads(e)))
    saved = [v for v in read if v in kept]
    used = set(read)
    primal_inputs = [i for i, v in enumerate(primal.jaxpr.invars) if v in used]
    tangent_inputs = [i for i, v in enumerate(tangents) if v in used]
    consts = [
        (v, c)
        for half, values in ((primal.jaxpr, primal.consts), (halves.linear.jaxpr, halves.linear.consts))
        for v, c in zip(half.constvars, values, strict=True)
        if v in used
    ]
    invars = [*saved, *(primal.jaxpr.invars[i] for i in primal_inputs), *(tangents[i] for i in tangent_inputs)]
    staged = checked(
        Jaxpr([v for v, _ in consts], invars, body.outvars, body.eqns, debug_info=closed.jaxpr.debug_info)
    )
    known = _first_pass(primal, count, saved)
    return CheckpointedJaxprs(
        known, ClosedJaxpr(staged, [c for _, c in consts]), primal_inputs, tangent_inputs, halves.nonzero_out
    )


def _named(eqn: Eqn) -> Eqn:
    """An equation that is computed again, in a scope that says so."""
    return eqn.replace(source=eqn.source.in_scope(_AGAIN + eqn.source.name_stack))


def _reads(e: Eqn | Jaxpr) -> list[Var]:
    """The variables that an equation reads, or that a program returns."""
    return [v for v in (e.outvars if isinstance(e, Jaxpr) else e.invars) if isinstance(v, Var)]


def _refuse_side_effects(jaxpr: Jaxpr) -> None:
    """Raise NotImplementedError for side effects that must not happen twice."""
    found = sorted(str(e) for e in jaxpr.effects if isinstance(e, fx.CallbackEffect) and e.kind == "IO")
    if found:
        raise NotImplementedError(
            f"Effects not supported in partial-eval of `checkpoint`/`remat`: [{', '.join(found)}]. The derivative runs "
            "the function again, but these effects must happen once. Move io_callback out of the function, or use "
            "pure_callback if the callback has no side effect."
        )


def _is_shown(eqn: Eqn) -> bool:
    """Whether an equation shows values. It shows them each time the function is computed."""
    return any(isinstance(e, fx.CallbackEffect) for e in eqn.effects)


def _kept_values(jaxpr: Jaxpr, policy: Callable) -> set[Var]:
    """Results of the equations that the policy keeps."""
    return {v for eqn in jaxpr.eqns if _is_kept(eqn, policy) for v in eqn.outvars}


def _is_kept(eqn: Eqn, policy: Callable) -> bool:
    return keeps(policy, eqn.primitive, [x.aval for x in eqn.invars], eqn.params)


def _keeping_inside(closed: ClosedJaxpr, policy: Callable) -> tuple[ClosedJaxpr, dict[Eqn, Eqn], set[Var]]:
    """The program with loops and branches that also return the values inside them that the policy keeps.

    Also returns, for each of these, the equation that recomputes it, and all variables of such values.
    """
    eqns, other, kept = [], {}, set()
    for eqn in closed.eqns:
        rule = eqn.primitive.keep_inside
        whole = rule is None or _is_kept(eqn, policy) or fx.exchange in eqn.effects or _is_shown(eqn)
        twice = None if whole else rule(_with_flat_bodies(eqn), lambda e: _is_kept(e, policy))
        if twice is not None:
            kept.update(twice.kept)
            other[twice.first] = twice.again
        eqns.append(eqn if twice is None else twice.first)
    return ClosedJaxpr(closed.jaxpr.replace(eqns=eqns), closed.consts), other, kept


def _with_flat_bodies(eqn: Eqn) -> Eqn:
    """An equation with all calls inlined in its bodies."""

    def flat(value: Any) -> Any:
        if isinstance(value, tuple) and any(isinstance(v, ClosedJaxpr) for v in value):
            return tuple(map(flat, value))
        if not isinstance(value, ClosedJaxpr):
            return value
        body = _flattened(value)
        inner = [e if e.primitive.keep_inside is None else _with_flat_bodies(e) for e in body.eqns]
        return ClosedJaxpr(body.jaxpr.replace(eqns=inner), body.consts)

    return eqn.replace(params={name: flat(value) for name, value in eqn.params.items()})


def _linear_part(halves: LinearizedJaxpr, primal: Jaxpr, count: int) -> tuple[Jaxpr, list[Var]]:
    """The linear equations with the primal's variables as residuals, and the variables of the tangents."""
    linear = halves.linear.jaxpr
    returned = iter(primal.outvars[count:])
    split = len(halves.forwarded)
    value_of = {
        v: next(returned) if i is None else primal.invars[i]
        for v, i in zip(linear.invars[:split], halves.forwarded, strict=True)
    }

    def renamed(atoms: Sequence[Any]) -> list[Any]:
        return [v if type(v) is Literal else value_of.get(v, v) for v in atoms]

    eqns = [e.replace(invars=renamed(e.invars)) for e in linear.eqns]
    return linear.replace(eqns=eqns, outvars=renamed(linear.outvars)), linear.invars[split:]


def _computed_again(
    jaxpr: Jaxpr, readers: Sequence[Eqn | Jaxpr], kept: set[Var], policy: Callable, other: dict[Eqn, Eqn]
) -> list[Eqn]:
    """The equations that recompute what `readers` read from kept values. `other` maps some equations to another form.

    Equations that show values run again, unless the policy keeps them and all their values are kept.

    Unused collectives over named axes are dropped, on all ranks alike. Communication with ranks that may run a
    different program is always repeated: another rank may need what this rank sends.
    """
    wanted = {v for e in readers for v in _reads(e)} - kept
    again = []
    for made in reversed(jaxpr.eqns):
        eqn = other.get(made, made)
        needed = [v in wanted for v in eqn.outvars]
        exchanges = fx.exchange in eqn.effects and not _is_kept(eqn, policy)
        shown = _is_shown(eqn) and not (_is_kept(eqn, policy) and any(v in kept for v in _reads(eqn)))
        if not any(needed) and not exchanges and not shown:
            continue
        if eqn.primitive.dce is not None and not all(needed):
            eqn = eqn.primitive.dce(needed, eqn)
        again.append(eqn)
        wanted.update(v for v in _reads(eqn) if v not in kept)
    return again[::-1]


def _in_turn(eqns: Sequence[Eqn], linear: Sequence[Eqn]) -> list[Eqn]:
    """Merges both lists, each linear equation as early as its operands allow, so that forward mode keeps little."""
    made_later = {v for e in eqns for v in e.outvars}
    waiting = deque(linear)
    ordered: list[Eqn] = []
    for eqn in (None, *eqns):
        if eqn is not None:
            ordered.append(eqn)
            made_later.difference_update(eqn.outvars)
        while waiting and made_later.isdisjoint(_reads(waiting[0])):
            ordered.append(waiting.popleft())
    return ordered


def _first_pass(primal: ClosedJaxpr, count: int, saved: list[Var]) -> ClosedJaxpr:
    """The primal part, which returns its results and the kept values, without equations that these do not need."""
    jaxpr = primal.jaxpr
    outvars = [*jaxpr.outvars[:count], *saved]
    pruned, _ = dead_code(jaxpr.replace(outvars=outvars), [True] * len(outvars))
    return ClosedJaxpr(pruned.replace(invars=jaxpr.invars), primal.consts)


def _is_plain_call(eqn: Eqn) -> bool:
    """Whether an equation is a call that is linearized through its body. Calls with user-defined rules are not."""
    lower = eqn.primitive.lower
    return isinstance(lower, InlineJaxpr) and eqn.primitive.linearize is not None and not lower.is_apart(eqn.params)


def _flattened(closed: ClosedJaxpr) -> ClosedJaxpr:
    """The same program with calls inlined, so that each operation can be kept or not."""
    if not any(map(_is_plain_call, closed.eqns)):
        return closed

    def evaluate(jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any]) -> list[Any]:
        env = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *args], strict=True))

        def read(atom):
            return atom.number if type(atom) is Literal else env[atom]

        for eqn in jaxpr.eqns:
            values = [read(v) for v in eqn.invars]
            with sources_of(eqn.source):
                if _is_plain_call(eqn):
                    inner = eqn.params[eqn.primitive.lower.param]
                    outs = evaluate(inner.jaxpr, inner.consts, values)
                else:
                    single = Jaxpr([], eqn.invars, eqn.outvars, [eqn])
                    outs = eval_jaxpr(single, (), *values)
            env.update(zip(eqn.outvars, outs, strict=True))
        return [read(v) for v in jaxpr.outvars]

    return trace_to_closed_jaxpr(
        lambda *args: evaluate(closed.jaxpr, closed.consts, args), closed.in_avals, closed.jaxpr.debug_info
    )
