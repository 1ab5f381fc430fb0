"""Defines the intermediate representation: Jaxprs, typed programs in SSA form."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Union, final

import numpy as np

from mpijax.core.base import provided
from mpijax.core.base.any_depth import any_depth
from mpijax.core.base.source import UNKNOWN, Source, inherited
from mpijax.core.dtypes.canonical import NARROWED
from mpijax.core.sharding.context import under
from mpijax.core.types import effects as fx
from mpijax.core.types.abstract import AbstractValue
from mpijax.core.types.avals import ShapedArray, number_of


class Var:
    """A variable, bound once.

    >>> mpijax.make_jaxpr(jnp.sin)(jnp.ones(3)).jaxpr.invars[0].aval
    ShapedArray(float32[3])
    """

    __slots__ = ("aval",)

    def __init__(self, aval: ShapedArray):
        self.aval = aval

    def __repr__(self) -> str:
        return f"Var(id={id(self)}):{self.aval.str_short(short_dtypes=False)}"


class DropVar(Var):
    """An output nobody reads; prints as `_`.

    >>> mpijax.extend.core.DropVar(mpijax.typeof(1.0))
    _
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return "_"


@final
class Literal:
    """A scalar constant inside the program.

    >>> mpijax.make_jaxpr(lambda x: x * 2)(1.0).eqns[0].invars[1].val
    2.0
    """

    __slots__ = ("val", "aval")

    def __init__(self, val: Any, aval: ShapedArray):
        self.val = val
        self.aval = aval

    @property
    def number(self) -> Any:
        """The scalar as an operand of operations under the current configuration."""
        return number_of(self.val, self.aval.dtype, self.aval.weak_type) if self.aval.dtype in NARROWED else self.val

    def __repr__(self) -> str:
        kind = _PRINTED_WITH_TYPES.get(type(self.val))
        return f"Literal({self.val})" if kind is None else f"Literal({kind}({self.val}, dtype={self.aval.dtype.name}))"


# The names of the types that JAX prints around numbers of Python.
_PRINTED_WITH_TYPES = {int: "TypedInt", complex: "TypedComplex"}

Atom = Union[Var, Literal]  # noqa: UP007


class Eqn:
    """`outvars = primitive[params] invars`.

    >>> mpijax.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0).eqns[0].primitive
    sin
    """

    __slots__ = ("primitive", "invars", "outvars", "params", "effects", "source")

    def __init__(self, primitive, invars, outvars, params, effects=fx.no_effects, source: Source = UNKNOWN):
        self.primitive = primitive
        self.invars: list[Atom] = invars
        self.outvars: list[Var] = outvars
        self.params: dict[str, Any] = params
        self.effects = effects
        self.source = source

    @property
    def source_info(self) -> Source:
        return self.source

    def replace(self, **changes) -> Eqn:
        fields = {name: getattr(self, name) for name in self.__slots__}
        return Eqn(**{**fields, **changes})

    def __repr__(self) -> str:
        return provided.eqn_text(self)


JaxprEqn = Eqn


class Jaxpr:
    """A program: constants, arguments, equations in order, results.

    >>> len(mpijax.make_jaxpr(lambda x: jnp.sin(x) * 2)(1.0).jaxpr.eqns)
    2
    """

    __slots__ = ("constvars", "invars", "eqns", "outvars", "effects", "debug_info", "__weakref__")

    def __init__(self, constvars, invars, outvars, eqns, effects=None, debug_info=None) -> None:
        self.constvars: list[Var] = list(constvars)
        self.invars: list[Var] = list(invars)
        self.outvars: list[Atom] = list(outvars)
        self.eqns: list[Eqn] = list(eqns)
        self.effects = frozenset().union(*(e.effects for e in self.eqns)) if effects is None else effects
        self.debug_info = debug_info

    @property
    def in_avals(self):
        return [v.aval for v in self.invars]

    @property
    def out_avals(self):
        return [v.aval for v in self.outvars]

    @property
    def is_high(self) -> bool:
        """Whether values are of types that libraries define, or operations are written in terms of others."""
        return AbstractValue.any_high and _is_high(self)

    def replace(self, **changes) -> Jaxpr:
        names = ("constvars", "invars", "outvars", "eqns", "effects", "debug_info")
        return Jaxpr(**{**{n: getattr(self, n) for n in names}, **changes})

    def pretty_print(self, **options) -> str:
        return provided.jaxpr_text(self, **options)

    def __str__(self) -> str:
        return self.pretty_print()

    __repr__ = __str__


class ClosedJaxpr:
    """A Jaxpr with values for its constants.

    >>> mpijax.make_jaxpr(lambda x: x + 1)(2).in_avals
    [ShapedArray(int32[], weak_type=True)]
    """

    __slots__ = ("jaxpr", "consts", "__weakref__")

    def __init__(self, jaxpr: Jaxpr, consts: Sequence[Any] = ()):
        assert len(jaxpr.constvars) == len(consts)
        self.jaxpr = jaxpr
        self.consts = list(consts)

    in_avals = property(lambda self: [v.aval for v in self.jaxpr.invars])
    out_avals = property(lambda self: [v.aval for v in self.jaxpr.outvars])
    literals = property(lambda self: self.consts)
    constvars = property(lambda self: self.jaxpr.constvars)
    invars = property(lambda self: self.jaxpr.invars)
    outvars = property(lambda self: self.jaxpr.outvars)
    eqns = property(lambda self: self.jaxpr.eqns)
    effects = property(lambda self: self.jaxpr.effects)
    debug_info = property(lambda self: self.jaxpr.debug_info)
    is_high = property(lambda self: self.jaxpr.is_high)

    def pretty_print(self, **options) -> str:
        return self.jaxpr.pretty_print(**options)

    def replace(self, *, jaxpr=None, consts=None) -> ClosedJaxpr:
        return ClosedJaxpr(self.jaxpr if jaxpr is None else jaxpr, self.consts if consts is None else consts)

    def __str__(self) -> str:
        return str(self.jaxpr)

    __repr__ = __str__


def _is_high(outer: Jaxpr) -> bool:
    """All values of such types come from arguments, constants and such operations."""
    for found in nested_jaxprs(outer):
        jaxpr = found.jaxpr if isinstance(found, ClosedJaxpr) else found
        if any(v.aval.is_high for v in (*jaxpr.constvars, *jaxpr.invars)):
            return True
        if any(eqn.primitive.is_expanded for eqn in jaxpr.eqns):
            return True
    return False


def map_jaxprs(x: Any, fun: Callable[[ClosedJaxpr], Any]) -> Any:
    """An equation's parameter with `fun` applied to each ClosedJaxpr in it, also inside tuples and lists."""
    if isinstance(x, ClosedJaxpr):
        return fun(x)
    return type(x)(map_jaxprs(v, fun) for v in x) if type(x) in (tuple, list) else x


def subjaxprs(params: dict[str, Any], closed: bool = False):
    """The Jaxprs among an equation's parameters, in order. closed: yield each ClosedJaxpr with its constants.

    >>> len(list(mpijax.extend.core.jaxprs_in_params(mpijax.make_jaxpr(mpijax.jit(jnp.sin))(1.0).eqns[0].params)))
    1
    """
    for value in params.values():
        for item in value if isinstance(value, (tuple, list)) else (value,):
            if isinstance(item, Jaxpr):
                yield item
            elif isinstance(item, ClosedJaxpr):
                yield item if closed else item.jaxpr


def nested_jaxprs(outer: Jaxpr | ClosedJaxpr) -> Iterator[Jaxpr | ClosedJaxpr]:
    """A Jaxpr and the Jaxprs inside it, at any depth, each once. Closed Jaxprs are yielded with their constants."""
    seen, todo = set(), [outer]
    while todo:
        found = todo.pop()
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        for eqn in found.eqns:
            todo += subjaxprs(eqn.params, closed=True)


def bound(eqn: Eqn, values: Sequence[Any]) -> Sequence[Any]:
    """The results of an equation in the current trace."""
    if ShapedArray.any_split:
        with scope_of(v.aval for v in (*eqn.invars, *eqn.outvars)):
            outs = eqn.primitive.bind(*values, **eqn.params)
    else:
        outs = eqn.primitive.bind(*values, **eqn.params)
    return outs if eqn.primitive.multiple_results else (outs,)


def scope_of(avals: Iterable[Any]) -> Any:
    """A scope with the mesh of the first split type among these as the mesh in context."""
    split = next((split for a in avals if (split := getattr(a, "split", None)) is not None), None)
    if split is None:
        return nullcontext()

    return under(split.mesh)


@any_depth
def eval_jaxpr(
    jaxpr: Jaxpr,
    consts: Sequence[Any],
    *args: Any,
    apply: Callable[[Eqn, list[Any]], Sequence[Any]] = bound,
) -> list[Any]:
    """Run a Jaxpr by binding its equations one after the other in the current trace.

    Values are dropped after their last use. apply: `(equation, values) -> results`, replaces binding an equation.

    >>> closed = mpijax.make_jaxpr(lambda x: x * x)(3.0)
    >>> mpijax.core.eval_jaxpr(closed.jaxpr, closed.consts, jnp.float32(5))
    [Array(25., dtype=float32)]
    """
    env: dict[Var, Any] = dict(zip(jaxpr.constvars, consts, strict=True))
    env.update(zip(jaxpr.invars, args, strict=True))
    last = last_uses(jaxpr)

    def read(atom):
        return atom.number if type(atom) is Literal else env[atom]

    outer, scope = inherited.source, inherited.scope
    try:
        for i, eqn in enumerate(jaxpr.eqns):
            inherited.source = eqn.source if eqn.source.file else outer
            inherited.scope = scope + eqn.source.name_stack
            outs = apply(eqn, [read(v) for v in eqn.invars])
            for var, out in zip(eqn.outvars, outs, strict=True):
                if type(var) is not DropVar:
                    env[var] = out
            for v in eqn.invars:
                if type(v) is not Literal and last.get(v) == i:
                    env.pop(v, None)
    finally:
        inherited.source, inherited.scope = outer, scope
    return [read(v) for v in jaxpr.outvars]


def last_uses(jaxpr: Jaxpr) -> dict[Var, int]:
    """For each variable the index of the last equation that reads it; results stay alive to the end."""
    last: dict[Var, int] = {}
    for i, eqn in enumerate(jaxpr.eqns):
        for v in eqn.invars:
            if type(v) is not Literal:
                last[v] = i
    for v in jaxpr.outvars:
        if type(v) is not Literal:
            last[v] = len(jaxpr.eqns)
    return last


def jaxpr_as_fun(closed: ClosedJaxpr) -> Callable:
    """A function of flat arguments that evaluates `closed`.

    >>> mpijax.extend.core.jaxpr_as_fun(mpijax.make_jaxpr(lambda x: x * x)(1.0))(jnp.float32(3))
    [Array(9., dtype=float32)]
    """

    def call(*args):
        return eval_jaxpr(closed.jaxpr, closed.consts, *args)

    return call


def is_literal_scalar(x: Any) -> bool:
    """Whether a constant becomes a literal of the program instead of a constant variable."""
    return isinstance(x, (bool, int, float, complex, np.generic)) or (isinstance(x, np.ndarray) and x.ndim == 0)


@any_depth
def dead_code(jaxpr: Jaxpr, used_outputs: Sequence[bool]) -> tuple[Jaxpr, list[bool]]:
    """Remove equations that no used output and no ordered effect needs.

    Returns the pruned Jaxpr and which arguments it still has. The pruned Jaxpr keeps only the used outputs and the
    arguments it still reads. If there is nothing to remove, returns the same Jaxpr.
    """
    outvars = [v for v, used in zip(jaxpr.outvars, used_outputs, strict=True) if used]
    live = {v for v in outvars if type(v) is not Literal}
    kept: list[Eqn] = []
    changed = len(outvars) < len(jaxpr.outvars)
    for eqn in reversed(jaxpr.eqns):
        needed = [v in live for v in eqn.outvars]
        if not any(needed) and not fx.pins(eqn.effects):
            changed = True
            continue
        rule = eqn.primitive.dce
        if rule is not None:
            before, eqn = eqn, rule(needed, eqn)
            changed |= eqn is not before
            if eqn is None:
                continue
        kept.append(eqn)
        live.update(v for v in eqn.invars if type(v) is not Literal)
    used_inputs = [v in live for v in jaxpr.invars]
    if not changed and all(used_inputs):
        return jaxpr, used_inputs
    invars = [v for v, used in zip(jaxpr.invars, used_inputs, strict=True) if used]
    constvars = jaxpr.constvars
    return Jaxpr(constvars, invars, outvars, kept[::-1], debug_info=jaxpr.debug_info), used_inputs


def without_dead_code(
    jaxpr: Jaxpr, consts: Sequence[Any], used: Sequence[bool] | None = None
) -> tuple[Jaxpr, list[Any], list[bool]]:
    """Like `dead_code`, but also removes constants that are no longer read. By default all outputs are used.

    Returns the Jaxpr, the values of its constants, and which arguments it still has.
    """
    kept, used_inputs = dead_code(jaxpr, [True] * len(jaxpr.outvars) if used is None else used)
    live = {v for e in kept.eqns for v in e.invars if type(v) is not Literal}
    live.update(v for v in kept.outvars if type(v) is not Literal)
    reads = [v in live for v in jaxpr.constvars]
    if all(reads):
        return kept, list(consts), used_inputs
    constvars = [v for v, r in zip(jaxpr.constvars, reads, strict=True) if r]
    return kept.replace(constvars=constvars), [c for c, r in zip(consts, reads, strict=True) if r], used_inputs
