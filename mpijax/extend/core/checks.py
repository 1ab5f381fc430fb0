"""Whether a Jaxpr is well formed: variables stand before they are read, and have the types that operations give."""

from __future__ import annotations

from typing import Any

from mpijax.core.avals import ShapedArray
from mpijax.core.errors import JaxprTypeError
from mpijax.core.jaxpr import ClosedJaxpr, DropVar, Jaxpr, Literal, subjaxprs
from mpijax.core.lowering import Partitioned
from mpijax.core.trace import named_axes


def check_jaxpr(jaxpr: Jaxpr) -> None:
    """Check a Jaxpr, and those in the parameters of its equations.

    Raises:
      JaxprTypeError: a variable is read that nothing has set, is set twice, or has another type than the operation
        gives; an operation does not take its operands.

    >>> mpijax.extend.core.check_jaxpr(mpijax.make_jaxpr(jnp.sin)(1.0).jaxpr)
    """
    if isinstance(jaxpr, ClosedJaxpr):
        jaxpr = jaxpr.jaxpr
    known = {*jaxpr.constvars, *jaxpr.invars}
    if len(known) != len(jaxpr.constvars) + len(jaxpr.invars):
        raise JaxprTypeError(f"a variable is an argument twice in\n{jaxpr}")
    for eqn in jaxpr.eqns:
        _check_known(eqn.invars, known, f"the equation\n{eqn}", jaxpr)
        _check_types(eqn, jaxpr)
        for inner in subjaxprs(eqn.params):
            mesh = eqn.params.get("mesh") if isinstance(eqn.primitive.lower, Partitioned) else None
            with named_axes({} if mesh is None else dict(mesh.shape)):
                check_jaxpr(inner)
        for v in eqn.outvars:
            if v in known:
                raise JaxprTypeError(f"a variable is set twice, the second time by the equation\n{eqn}\nin\n{jaxpr}")
            if type(v) is not DropVar:
                known.add(v)
    _check_known(jaxpr.outvars, known, "the results", jaxpr)


def _check_known(atoms: Any, known: set, where: str, jaxpr: Jaxpr) -> None:
    for v in atoms:
        if type(v) is not Literal and v not in known:
            raise JaxprTypeError(f"{where} of the program below read a variable that nothing has set\n{jaxpr}")


def _check_types(eqn: Any, jaxpr: Jaxpr) -> None:
    operands = [v.aval for v in eqn.invars]
    if any(type(a) is not ShapedArray for a in operands):
        return  # references have rules of their own
    try:
        out, _ = eqn.primitive.infer(operands, eqn.params)
    except (TypeError, ValueError) as error:
        raise JaxprTypeError(f"the equation\n{eqn}\ndoes not take its operands: {error}") from error
    found = list(out) if eqn.primitive.multiple_results else [out]
    said = [v.aval for v in eqn.outvars]
    if [(a.shape, a.dtype) for a in found] != [(a.shape, a.dtype) for a in said]:
        gives = ", ".join(a.str_short() for a in found)
        has = ", ".join(a.str_short() for a in said)
        raise JaxprTypeError(f"the equation\n{eqn}\ngives {gives}, its variables have the types {has}, in\n{jaxpr}")
