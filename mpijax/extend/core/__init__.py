"""``mpijax.extend.core``: primitives and Jaxprs for code that defines operations or interprets programs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from mpijax import missing as _missing
from mpijax.core.base.errors import ConcretizationTypeError, InconclusiveDimensionOperation, JaxprTypeError
from mpijax.core.base.source import current_source
from mpijax.core.programs.debug_info import DebugInfo
from mpijax.core.programs.jaxpr import ClosedJaxpr, DropVar, Jaxpr, Literal, Var, jaxpr_as_fun
from mpijax.core.programs.jaxpr import Eqn as JaxprEqn
from mpijax.core.programs.jaxpr import subjaxprs as _in_parameters
from mpijax.core.rules.primitive import Unsupported
from mpijax.core.tracing.checks import check_jaxpr
from mpijax.core.tracing.tracer import Tracer
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.effects import Effect, no_effects
from mpijax.core.types.typeof import typeof
from mpijax.extend.core import primitives
from mpijax.extend.core.primitives import CallPrimitive, call_impl
from mpijax.extend.primitive import Primitive
from mpijax.extend.traces import (
    TraceTag,
    find_top_trace,
    get_opaque_trace_state,
    set_current_trace,
    take_current_trace,
)
from mpijax.extend.traces import nonempty_axis_env as nonempty_axis_env_DO_NOT_USE
from mpijax.extend.traces import unsafe_am_i_under_a_jit as unsafe_am_i_under_a_jit_DO_NOT_USE
from mpijax.extend.traces import unsafe_am_i_under_a_vmap as unsafe_am_i_under_a_vmap_DO_NOT_USE
from mpijax.extend.traces import unsafe_get_axis_names as unsafe_get_axis_names_DO_NOT_USE
from mpijax.ops.callbacks.tokens import AbstractToken, Token

__all__ = [
    "AbstractToken",
    "CallPrimitive",
    "ClosedJaxpr",
    "DebugInfo",
    "DropVar",
    "Effect",
    "Effects",
    "InconclusiveDimensionOperation",
    "Jaxpr",
    "JaxprEqn",
    "JaxprTypeError",
    "Literal",
    "Primitive",
    "ShapedArray",
    "Token",
    "TraceTag",
    "Unsupported",
    "Var",
    "array_types",
    "call_impl",
    "check_jaxpr",
    "concrete_or_error",
    "find_top_trace",
    "gensym",
    "get_opaque_trace_state",
    "jaxpr_as_fun",
    "jaxprs_in_params",
    "mapped_aval",
    "new_jaxpr_eqn",
    "no_effects",
    "nonempty_axis_env_DO_NOT_USE",
    "primal_dtype_to_tangent_dtype",
    "primitives",
    "set_current_trace",
    "subjaxprs",
    "take_current_trace",
    "unmapped_aval",
    "unsafe_am_i_under_a_jit_DO_NOT_USE",
    "unsafe_am_i_under_a_vmap_DO_NOT_USE",
    "unsafe_get_axis_names_DO_NOT_USE",
    "valid_jaxtype",
]

Effects = frozenset[Effect]
array_types = {np.ndarray, np.generic, Array}


def jaxprs_in_params(params):
    """The Jaxprs among the parameters of an equation.

    >>> len(list(mpijax.extend.core.jaxprs_in_params(mpijax.make_jaxpr(mpijax.jit(jnp.sin))(1.0).eqns[0].params)))
    1
    """
    return [x.jaxpr if isinstance(x, ClosedJaxpr) else x for x in _in_parameters(params)]


def subjaxprs(jaxpr: Jaxpr) -> Iterator[Jaxpr]:
    """The Jaxprs in the parameters of a Jaxpr's equations, without the Jaxprs nested in these.

    >>> outer = mpijax.make_jaxpr(mpijax.jit(jnp.sin))(1.0).jaxpr
    >>> [inner.eqns[0].primitive.name for inner in mpijax.extend.core.subjaxprs(outer)]
    ['sin']
    """
    for eqn in jaxpr.eqns:
        yield from jaxprs_in_params(eqn.params)


def mapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of one example, for a batch of `size` along `axis`.

    >>> mpijax.extend.core.mapped_aval(5, 0, mpijax.typeof(jnp.ones((5, 3))))
    ShapedArray(float32[3])
    """
    if axis is None:
        return aval
    if aval.shape[axis] != size:
        raise ValueError(f"axis {axis} of {aval.str_short(True)} does not have size {size}")
    return aval.update(shape=aval.shape[:axis] + aval.shape[axis + 1 :])


def unmapped_aval(size: int, axis: int | None, aval: ShapedArray) -> ShapedArray:
    """The type of a batch of `size` along `axis`, for the type of one example.

    >>> mpijax.extend.core.unmapped_aval(5, 0, mpijax.typeof(jnp.ones(3)))
    ShapedArray(float32[5,3])
    """
    return aval if axis is None else aval.update(shape=(*aval.shape[:axis], size, *aval.shape[axis:]))


def valid_jaxtype(x) -> bool:
    """Whether a value has a type in programs.

    >>> mpijax.extend.core.valid_jaxtype(1.0), mpijax.extend.core.valid_jaxtype("text")
    (True, False)
    """
    try:
        typeof(x)
    except TypeError:
        return False
    return True


def concrete_or_error(force: Callable | None, val: Any, context: str = "") -> Any:
    """`force(val)`, or `val` itself. `context` tells the error message why a concrete value is needed.

    Raises:
      ConcretizationTypeError: for a traced value without a known concrete value.

    >>> mpijax.extend.core.concrete_or_error(int, jnp.array(3))
    3
    """
    if isinstance(val, Tracer):
        known = val.concrete()
        if known is None:
            raise ConcretizationTypeError(val, context)
        val = known
    return val if force is None else force(val)


def primal_dtype_to_tangent_dtype(primal_dtype: Any) -> Any:
    """The dtype of tangents of values of a dtype: float0 for integers and bool.

    >>> mpijax.extend.core.primal_dtype_to_tangent_dtype(np.dtype("float32"))
    dtype('float32')
    """
    return ShapedArray((), primal_dtype).to_tangent_aval().dtype


def gensym(suffix: str = "") -> Callable[[ShapedArray], Var]:
    """A function that makes a new variable of a type. Variables get names when a program is printed.

    >>> mpijax.extend.core.gensym()(mpijax.typeof(jnp.ones(3))).aval
    ShapedArray(float32[3])
    """
    return Var


def new_jaxpr_eqn(invars, outvars, primitive, params, effects=no_effects, source_info=None, ctx=None) -> JaxprEqn:
    """An equation; its default source is the line being executed. `ctx` exists in JAX, and is ignored.

    >>> x = mpijax.extend.core.Var(mpijax.typeof(1.0))
    >>> mpijax.extend.core.new_jaxpr_eqn([x], [mpijax.extend.core.Var(x.aval)], lax.neg_p, {}).primitive
    neg
    """
    source = current_source() if source_info is None else source_info
    return JaxprEqn(primitive, list(invars), list(outvars), params, effects, source)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
