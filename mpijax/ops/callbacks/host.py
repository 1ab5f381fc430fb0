"""Calls Python functions from a running program: `pure_callback` and `io_callback`.

The program passes arrays to the function, and gets arrays of the declared types. A rank's own program, as in
`shard_map`, calls the rank's function with its values, and nothing is communicated. A program on arrays that are split
over ranks gathers them. Then every rank calls a pure function. A function with side effects is called once, by the rank
of the first device, which sends the results to the others.
"""

from __future__ import annotations

import importlib
import inspect
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from types import TracebackType
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import provided
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.source import callable_location, is_internal
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive
from mpijax.core.tracing.trace import EVAL, current_trace, evaluate
from mpijax.core.trees import tree
from mpijax.core.types.array_api import is_whole
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.effects import CallbackEffect
from mpijax.core.types.typeof import typeof
from mpijax.ops.elementwise.convert import stage
from mpijax.ops.indexing.slicing import index_in_dim
from mpijax.transforms.batching import AxisData, batch_at, move_dim

VMAP_METHODS = ("sequential", "sequential_unrolled", "expand_dims", "broadcast_all", "legacy_vectorized", None)


@dataclass(frozen=True)
class FlatCallback:
    """A Python function of flat arguments. Two are equal if their function and structure are equal."""

    callback_func: Callable
    in_tree: Any

    def __call__(self, *flat: Any) -> list[Any]:
        args, kwargs = tree.tree_unflatten(self.in_tree, flat)
        return tree.tree_leaves(self.callback_func(*args, **kwargs))

    def __repr__(self) -> str:
        return f"_FlatCallback(callback_func={self.callback_func!r}, in_tree={self.in_tree})"


# ---------------------------------------------------------------- calling


def as_arrays(values: Sequence[Any]) -> list[Any]:
    """Arrays with the elements of `values`, which may be views that are invalid after the call."""
    return [stage(v) for v in values]


def call_python(callback: Callable, values: Sequence[Any]) -> Any:
    """Call a function on arrays, outside all transformations."""
    with current_trace(EVAL):
        return callback(*as_arrays(values))


def called_by_program(api: str, who: str, run: Callable[[], Any]) -> Any:
    """The result of `run`. An exception inside becomes JaxRuntimeError with the original traceback as text.

    Its cause is the exception, if the user's code raised it. The log shows the exception under `api`, a function of
    `jax`: it is there also if the process ends while another rank waits. The logger and the message are JAX's, which
    libraries filter.
    """
    try:
        return run()
    except Exception as error:
        report = _users_report(error)
        text = "".join(report.format()).rstrip()
        logging = importlib.import_module("logging")  # few callbacks fail
        shown = (type(error), error, _from_users_frame(error.__traceback__))
        logging.getLogger("jax._src.callback").error(f"jax.{api} failed", exc_info=shown)
        cause = error if report.stack else None
        raise JaxRuntimeError(f"INTERNAL: CpuCallback error calling callback {who}: {text}") from cause


def _from_users_frame(trace: TracebackType | None) -> TracebackType | None:
    """The traceback without mpijax's frames at its beginning."""
    while trace is not None and is_internal(trace.tb_frame.f_code):
        trace = trace.tb_next
    return trace


def _users_report(error: Exception) -> traceback.TracebackException:
    """The traceback without mpijax's own frames."""
    report = traceback.TracebackException.from_exception(error)
    codes = [frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__)]
    users = [line for line, code in zip(report.stack, codes, strict=True) if not is_internal(code)]
    report.stack = traceback.StackSummary.from_list(users)
    return report


def location(callback: Callable) -> str:
    """Name, file and line of the user's function."""
    return callable_location(callback.callback_func if isinstance(callback, FlatCallback) else inspect.unwrap(callback))


def _host_call(api: str, *values: Any, callback: FlatCallback, result_avals, **_: Any) -> list[np.ndarray]:
    """The results of the callback as ndarrays of exactly the declared types."""

    def run():
        return _checked(callback, call_python(callback, values), result_avals)

    return called_by_program(api, location(callback), run)


_pure_call = partial(_host_call, "pure_callback")
_io_call = partial(_host_call, "io_callback")


def _checked(callback: FlatCallback, outs: Sequence[Any], result_avals: Sequence[ShapedArray]) -> list[np.ndarray]:
    arrays = [np.asarray(x) for x in outs]
    arrays = [x.astype(dtypes.canonicalize_dtype(x.dtype), copy=False) for x in arrays]
    who = f"The callback {location(callback)}"
    if len(arrays) != len(result_avals):
        raise RuntimeError(
            f"Mismatched number of outputs from callback. Expected: {len(result_avals)}, Actual: {len(arrays)}. "
            f"{who} must return the pytree of arrays that result_shape_dtypes describes."
        )
    for i, (x, aval) in enumerate(zip(arrays, result_avals, strict=True)):
        differs = "shape" if x.shape != aval.shape else "dtype" if x.dtype != aval.dtype else ""
        if differs:
            raise RuntimeError(
                f"Incorrect output {differs} for return value #{i}: Expected: {getattr(aval, differs)}, Actual: "
                f"{getattr(x, differs)}. {who} returned {typeof(x).str_short(True)} where result_shape_dtypes says "
                f"{aval.str_short(True)}."
            )
    return arrays


def run_directly(primitive: Primitive, run: Callable) -> Callable:
    """How a callback runs outside programs: directly, unless an argument is a shard of a larger array."""

    def impl(*args, **params):
        if all(map(is_whole, args)):
            return run(*args, **params)
        return evaluate(primitive, args, params)

    return impl


def _now(call: Callable) -> Callable:
    def call_now(*args: Any, **params: Any) -> list[Any]:
        return as_arrays(call(*args, **params))

    return call_now


# ---------------------------------------------------------------- vectorization


def _sequentially(primitive: Primitive, args, dims, unroll: bool, params) -> list[Any]:
    """One call per example, in a loop, with stacked results."""
    def call(_, examples):
        each = iter(examples)
        return (), primitive.bind(*(x if d is None else next(each) for x, d in zip(args, dims, strict=True)), **params)

    batched = [move_dim(x, d, 0) for x, d in zip(args, dims, strict=True) if d is not None]
    return provided.scan(call, (), batched, unroll=unroll)[1]


def example(args: Sequence[Any], dims: Sequence[int | None], i: int) -> list[Any]:
    """The arguments of the i-th example of a batch."""
    return [x if d is None else index_in_dim(x, i, d, keepdims=False) for x, d in zip(args, dims, strict=True)]


def batch_call(primitive, axis, args, dims, *, result_avals, vmap_method, **params):
    """A call on a batch, by its `vmap_method`; passes other parameters through."""
    if vmap_method is None:
        methods = ", ".join(repr(m) for m in VMAP_METHODS[:4])
        raise NotImplementedError(
            f"vmap is only supported for the {primitive.name} primitive when vmap_method is one of {methods}, or "
            f"'{VMAP_METHODS[4]}'. Got vmap_method=None."
        )
    params = {**params, "vmap_method": vmap_method}
    if vmap_method in ("sequential", "sequential_unrolled"):
        outs = _sequentially(
            primitive, args, dims, vmap_method == "sequential_unrolled", {**params, "result_avals": result_avals}
        )
        return outs, [0] * len(outs)
    batched_avals = tuple(a.update(shape=(axis.size, *a.shape)) for a in result_avals)
    if vmap_method == "legacy_vectorized":
        args = [x if d is None else move_dim(x, d, 0) for x, d in zip(args, dims, strict=True)]
    else:
        repeated = axis if vmap_method == "broadcast_all" else AxisData(axis.name, 1)
        args = [batch_at(x, d, 0, repeated) for x, d in zip(args, dims, strict=True)]
    outs = primitive.bind(*args, result_avals=batched_avals, **params)
    return outs, [0] * len(outs)


def _io_batch(axis, args, dims, *, ordered, **params):
    if ordered:
        raise ValueError(
            "Cannot `vmap` ordered IO callback. Use ordered=False, or lax.map or a loop instead of vmap."
        )
    outs = _sequentially(io_callback_p, args, dims, False, {**params, "ordered": False})
    return outs, [0] * len(outs)


# ---------------------------------------------------------------- the primitives


def _no_derivative(message: str) -> Callable:
    def rule(*_args, **_params):
        raise ValueError(message)

    return rule


pure_callback_p: Primitive = Primitive(
    "pure_callback",
    type_rule=lambda *_, result_avals, **params: list(result_avals),
    reference=_pure_call,
    lower=HostCall(_pure_call),
    jvp=_no_derivative(
        "Pure callbacks do not support JVP. Please use `jax.custom_jvp` to use callbacks while taking gradients."
    ),
    transpose=_no_derivative(
        "Pure callbacks do not support transpose. Please use `jax.custom_vjp` to use callbacks while taking gradients."
    ),
    batch=lambda *args, **params: batch_call(pure_callback_p, *args, **params),
    multiple_results=True,
    sharding_type=types.whole,
)
pure_callback_p.impl = run_directly(pure_callback_p, _now(_pure_call))

io_callback_p = Primitive(
    "io_callback",
    type_rule=lambda *_, result_avals, **params: list(result_avals),
    reference=_io_call,
    lower=HostCall(_io_call, once=lambda params: True),
    jvp=_no_derivative("IO callbacks do not support JVP. Use jax.lax.stop_gradient on their arguments."),
    transpose=_no_derivative("IO callbacks do not support transpose. Use `jax.custom_vjp` around them."),
    batch=_io_batch,
    multiple_results=True,
    effects=lambda params: frozenset({CallbackEffect("IO", params["ordered"])}),
    sharding_type=types.whole,
)
io_callback_p.impl = run_directly(io_callback_p, _now(_io_call))


# ---------------------------------------------------------------- the functions


def _result_types(result_shape_dtypes: Any) -> tuple[tuple[ShapedArray, ...], Any]:
    leaves, out_tree = tree.tree_flatten(result_shape_dtypes)
    return canonical_results(leaves), out_tree


def canonical_results(leaves: Sequence[Any]) -> tuple[ShapedArray, ...]:
    """Declared results as types. Raises ValueError for 64 bits without x64, like `declared_results`."""
    avals = declared_results(leaves, TypeError)
    if any(dtypes.canonicalize_dtype(aval.dtype) != aval.dtype for aval in avals):
        raise ValueError("result_shape_dtypes cannot specify 64-bit types when `jax_enable_x64` is disabled")
    return avals


def declared_results(leaves: Sequence[Any], error: type[Exception]) -> tuple[ShapedArray, ...]:
    """Declared results as types, of any dtype. Raises `error` for one without shape and dtype."""
    for i, leaf in enumerate(leaves):
        if not hasattr(leaf, "shape") or not hasattr(leaf, "dtype"):
            raise error(
                "All elements of result_shape_dtypes must have 'shape' and 'dtype' attributes, as a "
                f"jax.ShapeDtypeStruct has. Got {leaf!r} at position {i}."
            )
    return tuple(ShapedArray(leaf.shape, leaf.dtype) for leaf in leaves)


def _bind(primitive: Primitive, callback, result_shape_dtypes, args, kwargs, **params):
    if not callable(callback):
        raise TypeError(f"{primitive.name} takes a function, got {callback!r} of type {type(callback).__name__}")
    flat, in_tree = tree.tree_flatten((args, kwargs))
    result_avals, out_tree = _result_types(result_shape_dtypes)
    outs = primitive.bind(*flat, callback=FlatCallback(callback, in_tree), result_avals=result_avals, **params)
    return tree.tree_unflatten(out_tree, outs)


def pure_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    vmap_method: str | None = None,
    **kwargs: Any,
) -> Any:
    """Call a Python function without side effects from inside a program.

    Args:
      callback: receives arrays in the structure of `args` and `kwargs`; returns arrays (or NumPy arrays, or numbers).
      result_shape_dtypes: a pytree of `ShapeDtypeStruct`: the types that `callback` returns.
      sharding: accepted without effect: every rank calls its own function.
      vmap_method: what `vmap` does. "sequential": one call per example, in a loop; "sequential_unrolled": the same
        without the loop; "expand_dims": one call, arguments without a batch axis get one of size 1;
        "broadcast_all": these are repeated; "legacy_vectorized": these are passed unchanged.

    Calls with unused results are dropped, and equal calls are merged. There is no derivative: wrap the call
    in `custom_jvp` or `custom_vjp`.

    Raises:
      JaxRuntimeError: when the program runs, if the function raises or returns other types than declared.
      NotImplementedError: under `vmap` without `vmap_method`.

    >>> f = mpijax.jit(lambda x: mpijax.pure_callback(np.cumsum, mpijax.typeof(x), x))
    >>> f(jnp.array([1.0, 2.0, 3.0]))
    Array([1., 3., 6.], dtype=float32)
    """
    if vmap_method not in VMAP_METHODS:
        raise ValueError(f"vmap_method must be one of the allowed methods {list(VMAP_METHODS)}, but got: {vmap_method}")
    return _bind(
        pure_callback_p, callback, result_shape_dtypes, args, kwargs, sharding=sharding, vmap_method=vmap_method
    )


def io_callback(
    callback: Callable[..., Any],
    result_shape_dtypes: Any,
    *args: Any,
    sharding: Any = None,
    ordered: bool = False,
    **kwargs: Any,
) -> Any:
    """Call a Python function for its side effects from inside a program, exactly once each time it is reached.

    Args:
      callback: receives arrays in the structure of `args` and `kwargs`; returns values of `result_shape_dtypes`.
      ordered: keep program order among all ordered callbacks.

    If arguments of the program are arrays over several ranks, the rank of the first device calls the function on whole
    arrays, and the others receive the results. In `shard_map` each rank calls it on its values.

    There is no derivative. `vmap` calls the function once per example, and rejects ordered callbacks.

    Raises:
      JaxRuntimeError: when the program runs, if the function raises or returns other types than declared.

    >>> mpijax.jit(lambda x: mpijax.experimental.io_callback(print, None, x))(jnp.arange(3))
    [0 1 2]
    """
    return _bind(io_callback_p, callback, result_shape_dtypes, args, kwargs, sharding=sharding, ordered=ordered)
