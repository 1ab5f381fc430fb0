"""Checks Jaxprs: every variable is set before it is read, and has the type that its operation gives.

The primitive's type rule checks each equation. With `jax_enable_checks`, every Jaxpr that a transformation builds is
checked. A Jaxpr from a file is always checked before it is used.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.errors import JaxprTypeError
from mpijax.core.base.state import splitting_freely
from mpijax.core.programs.jaxpr import ClosedJaxpr, DropVar, Eqn, Jaxpr, Literal, is_literal_scalar, scope_of, subjaxprs
from mpijax.core.rules.lowering import InlineJaxpr, Partitioned
from mpijax.core.tracing.trace import named_axes
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof


def check_jaxpr(jaxpr: Jaxpr | ClosedJaxpr) -> None:
    """Check a Jaxpr, and the Jaxprs in the parameters of its equations.

    Raises:
      JaxprTypeError: a variable is read before it is set, is set twice, or has another type than the operation gives;
        an operation or a call rejects its operands; a constant does not have its variable's type.

    >>> mpijax.extend.core.check_jaxpr(mpijax.make_jaxpr(jnp.sin)(1.0).jaxpr)
    """
    _check_new(jaxpr, WeakKeyDictionary())


def checked(jaxpr: Jaxpr) -> Jaxpr:
    """Returns a Jaxpr that a transformation has built, and checks it if `jax_enable_checks` is on."""
    if config.values.jax_enable_checks:
        _check_new(jaxpr, _of_transformations)
    return jaxpr


# For each Jaxpr that was checked, the named axes in whose scope it was: many calls may share one Jaxpr, and each
# transformation builds a Jaxpr around those that earlier ones have built.
_Checked = WeakKeyDictionary[Jaxpr | ClosedJaxpr, set[tuple[tuple[Any, int], ...]]]
_of_transformations: _Checked = WeakKeyDictionary()


def _check_new(jaxpr: Jaxpr | ClosedJaxpr, done: _Checked) -> None:
    """Check a Jaxpr, and the Jaxprs inside it, without those in `done`; then these are done, too."""
    todo: list[tuple[Jaxpr | ClosedJaxpr, dict[Any, int]]] = [(jaxpr, {})]
    new: dict[tuple[Jaxpr | ClosedJaxpr, tuple[tuple[Any, int], ...]], None] = {}
    while todo:
        given, axes = todo.pop()
        scope = tuple(axes.items())
        if (given, scope) not in new and scope not in done.get(given, ()):
            new[given, scope] = None
            with named_axes(axes):
                todo += [(inner, {**axes, **own}) for inner, own in _check(given)]
    for given, scope in new:
        done.setdefault(given, set()).add(scope)


def _check(given: Jaxpr | ClosedJaxpr) -> list[tuple[Jaxpr | ClosedJaxpr, dict[Any, int]]]:
    """Check a Jaxpr but not its inner Jaxprs. Returns these, with the named axes in their scope."""
    jaxpr = given.jaxpr if isinstance(given, ClosedJaxpr) else given
    if isinstance(given, ClosedJaxpr):
        _check_constants(given)
    known = {*jaxpr.constvars, *jaxpr.invars}
    if len(known) != len(jaxpr.constvars) + len(jaxpr.invars):
        raise JaxprTypeError(f"A variable appears twice among the arguments of\n{jaxpr}")
    inside = []
    for eqn in jaxpr.eqns:
        _check_atoms(eqn.invars, known, eqn, jaxpr)
        _check_types(eqn, jaxpr)
        inside += [(inner, _own_axes(eqn)) for inner in subjaxprs(eqn.params, closed=True)]
        for v in eqn.outvars:
            if v in known:
                raise JaxprTypeError(f"A variable is assigned twice. The second equation is\n{eqn}\nin\n{jaxpr}")
            if type(v) is not DropVar:
                known.add(v)
    _check_atoms(jaxpr.outvars, known, None, jaxpr)
    return inside


def _own_axes(eqn: Eqn) -> dict[Any, int]:
    """The named axes that an operation binds for its Jaxpr."""
    mesh = eqn.params.get("mesh") if isinstance(eqn.primitive.lower, Partitioned) else None
    return {} if mesh is None else dict(mesh.shape)


def _check_constants(closed: ClosedJaxpr) -> None:
    for v, value in zip(closed.jaxpr.constvars, closed.consts, strict=True):
        given = typeof(value)
        if not agree([given], [v.aval]):
            raise JaxprTypeError(f"A constant has type {given}, but its variable has type {v.aval}.")


def _check_atoms(atoms: Sequence[Any], known: set, eqn: Eqn | None, jaxpr: Jaxpr) -> None:
    for v in atoms:
        if type(v) is Literal:
            if not _is_value(v):
                raise JaxprTypeError(f"The literal {v.val!r} is not a value of its type {v.aval}.")
        elif v not in known:
            where = "The results" if eqn is None else f"The equation\n{eqn}\n"
            raise JaxprTypeError(f"{where} of the program below read an unassigned variable.\n{jaxpr}")


def _is_value(literal: Literal) -> bool:
    """Whether a literal's value is a scalar that its type can hold."""
    value, aval = literal.val, literal.aval
    if not is_literal_scalar(value) or aval.shape != () or not isinstance(aval.dtype, np.dtype):
        return False
    kind = np.asarray(value).dtype
    if dtypes.issubdtype(aval.dtype, np.integer):
        info = dtypes.iinfo(aval.dtype)
        return kind.kind in "biuV" and info.min <= int(value) <= info.max
    if aval.dtype == np.bool_:
        return kind.kind == "b" or value in (0, 1)
    return kind.kind in "biufcV" and (kind.kind != "c" or aval.dtype.kind == "c")


def _check_types(eqn: Eqn, jaxpr: Jaxpr) -> None:
    operands = [v.aval for v in eqn.invars]
    if any(a.is_ref or a.has_qdd for a in operands):
        return  # what changes has rules of its own
    lower = eqn.primitive.lower
    if isinstance(lower, InlineJaxpr):
        _check_call(eqn, operands, eqn.params[lower.param].in_avals)
    try:
        # the backward pass of a program may have results whose split was ambiguous
        with scope_of((*operands, *(v.aval for v in eqn.outvars))), splitting_freely():
            out, _ = eqn.primitive.infer(operands, eqn.params)
    except (TypeError, ValueError) as error:
        raise JaxprTypeError(f"The equation\n{eqn}\nrejects its operands: {error}") from error
    found = list(out) if eqn.primitive.multiple_results else [out]
    said = [v.aval for v in eqn.outvars]
    if not agree(found, said):
        gives, has = _listed(found), _listed(said)
        raise JaxprTypeError(f"The equation\n{eqn}\nreturns {gives}, but its variables have types {has}, in\n{jaxpr}")


def _check_call(eqn: Eqn, given: Sequence[ShapedArray], taken: Sequence[ShapedArray]) -> None:
    if not agree(given, taken):
        raise JaxprTypeError(f"The equation\n{eqn}\npasses {_listed(given)} to a program that takes {_listed(taken)}.")


def agree(some: Sequence[ShapedArray], others: Sequence[ShapedArray]) -> bool:
    """Whether types agree in shape and dtype, which determine the memory layout."""
    return [a.form for a in some] == [a.form for a in others]


def _listed(avals: Sequence[ShapedArray]) -> str:
    return ", ".join(a.str_short(True) for a in avals)
