"""Interprets operations: the current trace, and the traces that run operations at once.

The only global state is the current trace. `Primitive.bind` passes every operation to it. Each transformation defines
a `Trace` with its own `Tracer`s. A trace treats values of other traces as constants and passes operations on to its
parent.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax._ext import dispatch
from mpijax.core.base import config, provided
from mpijax.core.base.state import State, state
from mpijax.core.types.avals import NO_AXES

if TYPE_CHECKING:
    from mpijax.core.tracing.jaxpr_trace import JaxprTrace


class Trace:
    """Interprets operations in one way, and passes operations on to the trace `parent`.

    >>> mpijax.eval_shape(lambda x: print(isinstance(x._trace, mpijax.core.Trace)) or x, 1.0).shape
    True
    ()
    """

    __slots__ = ("parent", "__weakref__")

    # The mesh axes that a `vmap` splits its batch axis over.
    along: tuple[Any, ...] = ()

    def __init__(self, parent: Trace | None = None):
        self.parent = parent

    def recorder(self) -> JaxprTrace | None:
        """The trace that records constants; None where constants stay arrays."""
        return None if self.parent is None else self.parent.recorder()

    @property
    def main(self) -> Any:
        """An object that all tracers of one use of a transformation share."""
        return self

    def full_raise(self, x: Any) -> Any:
        """Lifts a value into this trace, for traces of libraries: here every value is accepted unchanged."""
        return x

    def records(self, args) -> bool:
        """Whether an operation on `args` is recorded in a Jaxpr rather than run."""
        return False

    def process_primitive(self, primitive, args, params):
        raise NotImplementedError

    def process_custom_call(self, call, args):
        """Processes a call of a function with a user-defined derivative; see `transforms.custom`.

        A library's trace overrides JAX's methods instead: `process_custom_jvp_call` and `process_custom_vjp_call`.
        """
        return call.in_trace_of_library(self, args)

    def process_custom_jvp_call(self, primitive, fun, jvp, tracers, *, symbolic_zeros):
        raise NotImplementedError(f"{type(self)} must override process_custom_jvp_call to handle custom_jvp primitives")

    def process_custom_vjp_call(self, primitive, fun, fwd, bwd, tracers, out_trees, symbolic_zeros):
        raise NotImplementedError(f"{type(self)} must override process_custom_vjp_call to handle custom_vjp primitives")

    def without_derivative(self, value: Any) -> Any:
        """The primal of a value of this trace, without its tangent or residuals."""
        return value if self.parent is None else self.parent.without_derivative(value)

    def read_ref(self, ref) -> Any:
        """The value of a mutable array reference created outside this trace; see `core.tracing.refs`."""
        if self.parent is None:
            raise ref.leaked()
        return ref.read_in(self.parent)

    def write_ref(self, ref, value) -> None:
        """Replace the value of a reference created outside this trace."""
        if self.parent is None:
            raise ref.leaked()
        ref.write_in(self.parent, value)


class EvalTrace(Trace):
    """Runs operations immediately."""

    __slots__ = ()

    def process_primitive(self, primitive, args, params):
        impl = primitive.impl
        if impl is not None:
            return impl(*args, **params)
        if config.values.checks_operations:
            return provided.evaluate_checking(primitive, args, params)
        return provided.evaluate(primitive, args, params)

    def process_custom_call(self, call, args):
        return call.fun(*args)


def evaluate(primitive, args, params):
    """Compile and run an operation as a program, even if its primitive could run it directly."""
    return provided.evaluate(primitive, args, params)


EVAL = EvalTrace(None)


State.first_trace = state.trace = EVAL


dispatch.connect(state, EVAL, config.values)


@contextmanager
def current_trace(trace: Trace):
    """Make `trace` current inside the block."""
    saved = state.trace
    state.trace = trace
    try:
        yield trace
    finally:
        state.trace = saved


def eval_context() -> Any:
    """Inside, every operation runs immediately, even during tracing. Operands must not be tracers.

    >>> def f(x):
    ...     with mpijax.core.eval_context():
    ...         table = [float(v) for v in jnp.arange(3.0)]
    ...     return x + sum(table)
    >>> mpijax.jit(f)(jnp.float32(1))
    Array(4., dtype=float32)
    """
    return current_trace(EVAL)


@contextmanager
def named_axes(axes: dict[Any, int], manual: frozenset | None = None, mesh: Any = None):
    """Bring axis names into scope. `manual` replaces the set of mesh axes over which values may vary.

    mesh: the mesh that has these axes, in the body of a `shard_map` over them.
    """
    saved = state.axis_env, state.manual_axes, state.body
    state.axis_env = {**state.axis_env, **axes}
    if manual is not None:
        state.manual_axes = manual
    if mesh is not None:
        outer = NO_AXES if state.body is None or state.body[0] != mesh else state.body[1]
        state.body = mesh, outer | frozenset(axes)
    try:
        yield
    finally:
        state.axis_env, state.manual_axes, state.body = saved


@contextmanager
def outside():
    """Inside, operations run immediately, as outside of all transformations."""
    saved = state.trace, state.axis_env, state.manual_axes, state.body
    state.trace, state.axis_env, state.manual_axes, state.body = EVAL, {}, NO_AXES, None
    try:
        yield
    finally:
        state.trace, state.axis_env, state.manual_axes, state.body = saved


def scope_key() -> tuple:
    """Everything a traced program depends on besides the function and the types of its arguments."""
    return config.trace_key(), tuple(state.axis_env.items()), state.manual_axes, state.body, examples_over()


def examples_over() -> frozenset:
    """The mesh axes that enclosing `vmap`s split their batch axes over."""
    trace, found = state.trace, NO_AXES
    while trace is not None:
        found = found.union(trace.along)
        trace = trace.parent
    return found


def axis_size(name: Any, caller: str = "the function") -> int:
    """Size of a named axis in scope; the product for a tuple of names. Errors tell the user to call `caller`."""
    if isinstance(name, (tuple, list)):
        return int(np.prod([axis_size(n, caller) for n in name], dtype=np.int64))
    try:
        return state.axis_env[name]
    except KeyError:
        known = ", ".join(map(repr, state.axis_env)) or "none"
        raise NameError(
            f"Found an unbound axis name: {name}. To fix this, please call {caller} under `jax.shard_map` over a mesh "
            f"that has the axis, or under `jax.vmap` with axis_name={name!r}. The axis names in scope are: {known}."
        ) from None


def trace_state_clean() -> bool:
    """Whether no transformation is active in this thread."""
    return state.trace is EVAL
