"""Calls Python functions that write their results into the program's memory: `buffer_callback`."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

import numpy as np

from mpijax._ext import dlpack
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.programs.jaxpr import Eqn
from mpijax.core.rules import sharding_types as types
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive
from mpijax.core.trees import tree
from mpijax.core.types.effects import CallbackEffect
from mpijax.core.types.typeof import typeof
from mpijax.ops.callbacks.ffi_call import alias_pairs
from mpijax.ops.callbacks.host import as_arrays, batch_call, called_by_program, declared_results, location, run_directly


class ExecutionStage(enum.Enum):
    """When a callback runs. Here it always runs in stage EXECUTE.

    >>> from mpijax.experimental.buffer_callback import ExecutionContext, ExecutionStage
    >>> ExecutionContext().stage is ExecutionStage.EXECUTE
    True
    """

    INSTANTIATE = 0
    PREPARE = 1
    INITIALIZE = 2
    EXECUTE = 3


class ExecutionContext:
    """The first argument of a callback.

    >>> mpijax.experimental.buffer_callback.ExecutionContext().stage
    <ExecutionStage.EXECUTE: 3>
    """

    @property
    def stage(self) -> ExecutionStage:
        return ExecutionStage.EXECUTE

    @property
    def stream(self) -> NoReturn:
        """Raises JaxRuntimeError: programs run on CPUs."""
        raise JaxRuntimeError("UNIMPLEMENTED: XLA FFI GPU context is not available")


class Buffer:
    """The memory of an argument or of a result, for the time of the call. `np.asarray` gives a view of it.

    >>> import numpy as np
    >>> from mpijax.experimental.buffer_callback import buffer_callback
    >>> def fill(context, result):
    ...     print(type(result).__name__, result.shape, result.dtype, result.writeable)
    ...     np.asarray(result)[...] = 7
    >>> buffer_callback(fill, mpijax.ShapeDtypeStruct((2,), np.float32))()
    Buffer (2,) float32 True
    Array([7., 7.], dtype=float32)
    """

    __slots__ = ("_view",)

    def __init__(self, view: np.ndarray):
        self._view = view

    @property
    def shape(self) -> tuple[int, ...]:
        return self._view.shape

    @property
    def dtype(self) -> np.dtype:
        return self._view.dtype

    @property
    def ndim(self) -> int:
        return self._view.ndim

    @property
    def writeable(self) -> bool:
        """Whether it is a result."""
        return self._view.flags.writeable

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        if dtype is not None and dtype != self.dtype:
            raise ValueError("dtype parameter is not supported by Buffer.__array__.")
        if copy:
            raise ValueError("Buffer.__array__ with copy=True is not supported.")
        return self._view

    def __dlpack__(self, **kwargs: Any) -> Any:
        return dlpack.export(self._view, kwargs)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self._view.__dlpack_device__()


def _read_only(x: np.ndarray) -> np.ndarray:
    view = x.view()
    view.flags.writeable = False
    return view


def _host_call(
    *values: Any, callback: Callable, result_avals, in_tree: Any, out_tree: Any, input_output_aliases, **_: Any
) -> list[np.ndarray]:
    """The arrays that the callback filled. A result that it leaves alone is zero, or the argument that it aliases."""
    operands = [np.asarray(x) for x in values]
    results = [np.zeros(aval.shape, aval.dtype) for aval in result_avals]
    for i, o in input_output_aliases:
        results[o][...] = operands[i]
        if operands[i].shape == results[o].shape:
            operands[i] = results[o]
    args, kwargs = tree.tree_unflatten(in_tree, [Buffer(_read_only(x)) for x in operands])
    outs = tree.tree_unflatten(out_tree, [Buffer(x) for x in results])

    def run() -> None:
        if callback(ExecutionContext(), outs, *args, **kwargs) is not None:
            raise ValueError("buffer_callback callback must not return any values.")

    called_by_program("experimental.buffer_callback", location(callback), run)
    return results


def _no_derivative(which: str, rule: str) -> Callable:
    def refused(*_args: Any, **_params: Any) -> NoReturn:
        raise ValueError(
            f"Buffer callbacks do not support {which}. Please use `jax.{rule}` to use callbacks while taking gradients."
        )

    return refused


def _printed(eqn: Eqn, names: Any) -> list[tuple[str, Any]]:
    """All parameters. The address of the function is left out, because it differs between ranks."""
    callback = re.sub(r"0x[0-9a-f]+", "0xXXXXXXXXXXXX", repr(eqn.params["callback"]))
    return sorted({**eqn.params, "callback": callback}.items())


buffer_callback_p: Primitive = Primitive(
    "buffer_callback",
    type_rule=lambda *_, result_avals, **params: list(result_avals),
    reference=_host_call,
    lower=HostCall(_host_call),
    jvp=_no_derivative("JVP", "custom_jvp"),
    transpose=_no_derivative("transpose", "custom_vjp"),
    batch=lambda *args, **params: batch_call(buffer_callback_p, *args, **params),
    multiple_results=True,
    effects=lambda params: frozenset({CallbackEffect("BufferCallback")} if params["has_side_effect"] else ()),
    pretty=_printed,
    sharding_type=types.whole,
)
buffer_callback_p.impl = run_directly(buffer_callback_p, lambda *args, **params: as_arrays(_host_call(*args, **params)))


def buffer_callback(
    callback: Callable[..., None],
    result_shape_dtypes: Any,
    *,
    has_side_effect: bool = False,
    vmap_method: str | None = None,
    input_output_aliases: dict[int, int] | None = None,
    command_buffer_compatible: bool = False,
) -> Callable[..., Any]:
    """A function that calls ``callback(context, results, *args, **kwargs)``, which writes into `results`.

    Args:
      callback: gets an `ExecutionContext`, and `Buffer`s in the structure of the results and of the arguments. It
        returns None.
      result_shape_dtypes: a pytree of `ShapeDtypeStruct`s.
      has_side_effect: calls are neither dropped nor merged.
      vmap_method: what `vmap` does, as in `pure_callback`.
      input_output_aliases: `{argument: result}`, numbers of leaves: the two are the same memory in the callback.
      command_buffer_compatible: has no effect on CPUs.

    There is no derivative: wrap it in `custom_jvp` or `custom_vjp`. Nothing is communicated, except that an array
    sharded over ranks is gathered first.

    Raises JaxRuntimeError, when the program runs, for an exception in the callback.

    >>> import numpy as np
    >>> from mpijax.experimental.buffer_callback import buffer_callback
    >>> def add_one(context, result, x):
    ...     np.add(x, 1, out=np.asarray(result))
    ...     return None
    >>> buffer_callback(add_one, mpijax.ShapeDtypeStruct((), np.int32))(jnp.int32(41))
    Array(42, dtype=int32)
    """
    leaves, out_tree = tree.tree_flatten(result_shape_dtypes)
    result_avals = declared_results(leaves, AttributeError)

    def call(*args: Any, **kwargs: Any) -> Any:
        flat, in_tree = tree.tree_flatten((args, kwargs))
        aliases: Sequence[Any] = ()
        if input_output_aliases:
            aliases = alias_pairs(input_output_aliases, [typeof(x) for x in flat], result_avals)
        outs = buffer_callback_p.bind(
            *flat, callback=callback, result_avals=result_avals, in_tree=in_tree, out_tree=out_tree,
            vmap_method=vmap_method, has_side_effect=has_side_effect, input_output_aliases=tuple(aliases),
            command_buffer_compatible=command_buffer_compatible,
        )  # fmt: skip
        return tree.tree_unflatten(out_tree, outs)

    return call
