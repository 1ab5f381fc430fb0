"""Implements `debug_nans` and `debug_infs`: programs check their results, and find the operation that made a NaN.

A program ends with one more equation, which reads the results. If they contain a NaN, the program runs again with the
same arguments, operation by operation, with the same check after each operation. The error names the first operation
that gives a NaN, with the user's line. A program that communicates does not run again, because other ranks may have
continued.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import config
from mpijax.core.base.source import current_source
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Literal, eval_jaxpr
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.effects import CallbackEffect, communication
from mpijax.ops.callbacks.host import call_python

_EFFECTS = frozenset({CallbackEffect("Debug")})


def wanted() -> bool:
    """Whether programs must be checked."""
    return config.values.jax_debug_nans or config.values.jax_debug_infs


def checked(closed: ClosedJaxpr, name: str) -> ClosedJaxpr:
    """The program `name` with a check of its floating-point results at the end."""
    jaxpr = closed.jaxpr
    inexact = [v for v in dict.fromkeys(jaxpr.outvars) if dtypes.issubdtype(v.aval.dtype, np.inexact)]
    outputs = [v for v in inexact if type(v) is not Literal or not np.isfinite(v.val)]
    if not outputs:
        return closed
    params = {
        "program": closed,
        "name": name,
        "num_outputs": len(outputs),
        "nans": config.values.jax_debug_nans,
        "infs": config.values.jax_debug_infs,
    }
    check = Eqn(nan_check_p, [*outputs, *jaxpr.invars], [], params, _EFFECTS)
    return ClosedJaxpr(jaxpr.replace(eqns=[*jaxpr.eqns, check], effects=None), closed.consts)


def _fault(arrays, nans: bool, infs: bool) -> str | None:
    for x in arrays:
        if nans and np.isnan(x).any():
            return "nan"
        if infs and np.isinf(x).any():
            return "inf"
    return None


def _look(*arrays: Any, program: ClosedJaxpr, name: str, num_outputs: int, nans: bool, infs: bool) -> list[Any]:
    fault = _fault(arrays[:num_outputs], nans, infs)
    if fault is None:
        return []
    inputs = arrays[num_outputs:]
    single = len(program.eqns) == 1 and program.eqns[0].primitive.name == name
    whole = all(x.shape == a.shape for x, a in zip(inputs, program.in_avals, strict=True))
    found = "results of operations are checked."
    if not single and whole and communication not in program.effects:
        with config.debug_nans(nans), config.debug_infs(infs):
            call_python(lambda *args: eval_jaxpr(program.jaxpr, program.consts, *args), inputs)
        found = (
            "the de-optimized function (its operations one by one) was called, to find the operation. However, the "
            "de-optimized function did not produce invalid values: the value is a literal or an argument that the "
            "function returns, or comes from how the compiled program computes."
        )
    where = f"{name if single else f'the result of jit({name})'} at {current_source()}"
    if single and name == "shard_map":
        start = f"Invalid value ({fault}) encountered in sharded computation, {where}"
    else:
        start = f"invalid value ({fault}) encountered in {where}"
    raise FloatingPointError(f"{start}. Because jax_debug_{fault}s is set, {found}")


_ADDED_LATE = Unsupported("only the compiler makes this primitive, after all transformations")

nan_check_p = Primitive(
    "nan_check",
    type_rule=lambda *_, **params: [],
    reference=_look,
    lower=HostCall(_look),
    jvp=_ADDED_LATE,
    transpose=_ADDED_LATE,
    batch=_ADDED_LATE,
    multiple_results=True,
    sharding_type=types.whole,
    effects=lambda params: _EFFECTS,
)
