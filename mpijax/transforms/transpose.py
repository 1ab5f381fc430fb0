"""Reverse mode: runs a linear Jaxpr backwards, from cotangents of results to cotangents of arguments."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any

from mpijax.core.base import provided
from mpijax.core.base.memo import memo_on_jaxpr
from mpijax.core.base.source import sources_of, transforming
from mpijax.core.base.state import splitting_freely
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, bound, scope_of
from mpijax.core.tracing.jaxpr_trace import trace_passing_refs
from mpijax.core.types import effects as fx
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.zeros import Zero, add_tangents, instantiate


class UndefPrimal:
    """A placeholder for a linear argument in transpose rules; it has only a type.

    >>> mpijax.interpreters.ad.UndefinedPrimal(mpijax.typeof(jnp.zeros(3))).aval
    ShapedArray(float32[3])
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"UndefinedPrimal({self.aval})"


def is_undefined_primal(x: Any) -> bool:
    """Whether `x`, an operand in a transpose rule, is linear: only its type is known.

    >>> mpijax.interpreters.ad.is_undefined_primal(3.0)
    False
    """
    return type(x) is UndefPrimal


def backward_pass(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    args: Sequence[Any],
    cotangents: Sequence[Any],
    gathered: Sequence[Any] | None = None,
    wanted: Sequence[bool] | None = None,
) -> list[Any]:
    """Cotangents of the arguments marked `UndefPrimal`; a Zero for each other argument.

    Equations that depend on no linear argument are evaluated first. The others are transposed from last to first.
    Cotangents of a variable with several readers are added.
    User-defined backward rules on the path to a result run even without a cotangent, because they may return one.
    Exchanges with other ranks are transposed even without a cotangent here, because another rank may have one.
    `gathered`: the initial cotangent of each argument (a Zero: none). `wanted`: which cotangents the caller needs.
    Work for the others only is skipped, and their cotangents are incomplete.
    """
    exchanges = fx.exchange in jaxpr.effects
    if gathered is None and not exchanges and all(type(ct) is Zero for ct in cotangents):
        return [Zero(v.aval.to_cotangent_aval()) for v in jaxpr.invars]
    asked_for = None if wanted is None else {v for v, w in zip(jaxpr.invars, wanted, strict=True) if w}
    program = _LinearProgram(jaxpr, consts, args, asked_for)
    asked_anyway = _rules_on_the_way(program.eqns, jaxpr.outvars)
    found = _Cotangents()
    for v, ct in zip(jaxpr.invars, gathered or (), strict=False):
        found.add(v, ct)
    for atom, ct in zip(jaxpr.outvars, cotangents, strict=True):
        if program.is_linear(atom):
            found.add(atom, ct)
    for eqn in reversed(program.eqns):
        cts = found.taken(eqn)
        exchanged = exchanges and fx.exchange in eqn.effects
        if cts is None and not exchanged and id(eqn) not in asked_anyway:
            continue
        with sources_of(eqn.source):
            for atom, ct in zip(eqn.invars, program.transposed(eqn, cts), strict=True):
                if program.is_linear(atom):
                    found.add(atom, ct)
    return [found.of(v) for v in jaxpr.invars]


class _LinearProgram:
    """A Jaxpr as the backward pass reads it.

    known: the values of variables that depend on no linear argument. linear: the other variables. eqns: the equations
    that compute them, in order; with `asked_for`, only those through which a cotangent reaches these arguments.
    """

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any], args: Sequence[Any], asked_for: set[Any] | None):
        self.known: dict[Any, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
        self.linear: set[Any] = set()
        self.eqns: list[Eqn] = []
        for v, x in zip(jaxpr.invars, args, strict=True):
            if type(x) is UndefPrimal:
                self.linear.add(v)
            else:
                self.known[v] = x
        for eqn in jaxpr.eqns:
            if fx.linear in eqn.effects or any(map(self.is_linear, eqn.invars)):
                self._keep(eqn, asked_for)
            else:
                with sources_of(eqn.source):
                    values = bound(eqn, list(map(self.read, eqn.invars)))
                self.known.update(zip(eqn.outvars, values, strict=True))

    def _keep(self, eqn: Eqn, asked_for: set[Any] | None) -> None:
        self.linear.update(eqn.outvars)
        if asked_for is not None:
            leads_there = not asked_for.isdisjoint(v for v in eqn.invars if type(v) is not Literal)
            if not leads_there and fx.exchange not in eqn.effects:
                return
            asked_for.update(eqn.outvars)
        self.eqns.append(eqn)

    def is_linear(self, atom: Any) -> bool:
        """Whether a variable depends on a linear argument."""
        return type(atom) is not Literal and atom in self.linear

    def read(self, atom: Any) -> Any:
        return atom.number if type(atom) is Literal else self.known[atom]

    def transposed(self, eqn: Eqn, cts: Sequence[Any] | None) -> list[Any]:
        """The cotangents of an equation's operands. cts: those of its results; None for zeros."""
        cts = (None,) * len(eqn.outvars) if cts is None else cts
        outs = [Zero(v.aval.to_cotangent_aval()) if ct is None else ct for ct, v in zip(cts, eqn.outvars, strict=True)]
        inputs = [UndefPrimal(v.aval) if self.is_linear(v) else self.read(v) for v in eqn.invars]
        transpose = partial(_laid_out_alike, eqn) if ShapedArray.any_split else eqn.primitive.transpose
        return transpose(outs if eqn.primitive.multiple_results else outs[0], *inputs, **eqn.params)


class _Cotangents:
    """The cotangents of variables; those from several readers are added."""

    def __init__(self) -> None:
        self.sums: dict[Any, Any] = {}

    def add(self, v: Any, ct: Any) -> None:
        if ct is None or type(ct) is Zero:
            return
        if v in self.sums:
            with scope_of([typeof(ct)]) if ShapedArray.any_split else nullcontext():
                ct = add_tangents(self.sums[v], ct)
        self.sums[v] = ct

    def taken(self, eqn: Eqn) -> list[Any] | None:
        """The cotangents of an equation's results, which nothing reads again; None if it has none."""
        cts = [self.sums.pop(v, None) for v in eqn.outvars]
        return None if all(ct is None for ct in cts) else cts

    def of(self, v: Any) -> Any:
        return self.sums.get(v, Zero(v.aval.to_cotangent_aval()))


def _rules_on_the_way(eqns: Sequence[Any], results: Sequence[Any]) -> set[int]:
    """Ids of the equations with user-defined backward rules that contribute to results."""
    if not any(eqn.primitive.has_users_transpose for eqn in eqns):
        return set()
    read = {v for v in results if type(v) is not Literal}
    found = set()
    for eqn in reversed(eqns):
        if not read.isdisjoint(eqn.outvars):
            read.update(v for v in eqn.invars if type(v) is not Literal)
            if eqn.primitive.has_users_transpose:
                found.add(id(eqn))
    return found


def _laid_out_alike(eqn, ct, *inputs, **params) -> list[Any]:
    """The cotangents of an equation's operands, each split over Explicit mesh axes as its operand."""
    with scope_of(v.aval for v in (*eqn.invars, *eqn.outvars)), splitting_freely():
        cts = eqn.primitive.transpose(ct, *inputs, **params)
    return [_split_like(ct_in, v.aval) for ct_in, v in zip(cts, eqn.invars, strict=True)]


def _split_like(ct: Any, primal: ShapedArray) -> Any:
    """A cotangent resharded to the split that the type of its primal requires."""
    if ct is None or type(ct) is Zero:
        return ct
    have, want = typeof(ct), primal.to_cotangent_aval()
    if have.split == want.split or have.has_no_tangent:
        return ct
    sharding = want.sharding if want.split is not None else have.whole_sharding()
    return provided.resharded(ct, sharding)


@memo_on_jaxpr
def transpose_jaxpr(
    closed: ClosedJaxpr,
    linear: tuple[bool, ...],
    nonzero_cts: tuple[bool, ...],
    force: bool | tuple[bool, ...] = False,
    refs: tuple[Any, ...] = (),
):
    """The transpose of a Jaxpr with respect to the arguments marked `linear`.

    The result takes the other arguments, then the cotangents marked `nonzero_cts`. It returns the nonzero cotangents of
    the linear arguments. The second returned value flags which these are.
    `force`: linear arguments whose cotangents are returned even if they are zero.
    The last returned value is the mutable array references that user-defined backward rules use, at least `refs`. The
    result takes their values first, and returns their new values first.
    """
    nonzero_out: list[bool] = []
    plain = [a for a, lin in zip(closed.in_avals, linear, strict=True) if not lin]
    ct_avals = [a.to_cotangent_aval() for a, nz in zip(closed.out_avals, nonzero_cts, strict=True) if nz]

    def fun(*flat):
        values, cts = iter(flat[: len(plain)]), iter(flat[len(plain) :])
        args = [UndefPrimal(a) if lin else next(values) for a, lin in zip(closed.in_avals, linear, strict=True)]
        pairs = zip(closed.out_avals, nonzero_cts, strict=True)
        full = [next(cts) if nz else Zero(a.to_cotangent_aval()) for a, nz in pairs]
        result = backward_pass(closed.jaxpr, closed.consts, args, full)
        wanted = [ct for ct, lin in zip(result, linear, strict=True) if lin]
        forced = [force] * len(wanted) if isinstance(force, bool) else force
        nonzero_out[:] = (f or type(ct) is not Zero for f, ct in zip(forced, wanted, strict=True))
        return [instantiate(ct) for ct, nz in zip(wanted, nonzero_out, strict=True) if nz]

    transposed, refs = trace_passing_refs(fun, plain + ct_avals, closed.jaxpr.debug_info, refs)
    return transposed, nonzero_out, refs


def transposed(linearized, cotangents: Sequence[Any], wanted: Sequence[bool] | None = None) -> list[Any]:
    """Pull cotangents back through a `Linearized`; a Zero or an array per input, complete for those `wanted`."""
    live = [ct for ct, nz in zip(cotangents, linearized.nonzero_out, strict=True) if nz]
    args = [UndefPrimal(v.aval) for v in linearized.jaxpr.invars]
    if wanted is not None:
        wanted = [w for w, a in zip(wanted, linearized.in_avals, strict=True) if not a.has_no_tangent]
    with transforming("transpose"):
        outs = iter(backward_pass(linearized.jaxpr, linearized.residuals, args, live, wanted=wanted))
    return [Zero(a) if a.has_no_tangent else next(outs) for a in linearized.in_avals]
