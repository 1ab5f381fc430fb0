"""Defines `Tracer`: a value inside a transformation; and the errors for values that leave it."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import errors
from mpijax.core.types.abstract import lent
from mpijax.core.types.array_api import Array, load_then_getattr
from mpijax.core.types.avals import ShapedArray

if TYPE_CHECKING:
    from mpijax.core.tracing.trace import Trace

# Attributes of arrays about memory and devices, which tracers lack; with the start of the error message for each.
_OF_MEMORY = {
    **dict.fromkeys(("addressable_shards", "committed"), "The '{}' attribute is not available"),
    **dict.fromkeys(("global_shards", "is_fully_addressable", "is_fully_replicated"), "The {} property was called"),
}


def _of_memory(name: str) -> Callable:
    """A method of concrete arrays about memory and devices: it exists on tracers, and its call raises."""

    def method(self, *_args, **_kwargs):
        raise errors.ConcretizationTypeError(self, f"The {name}() method was called on {self._error_repr()}.")

    method.__name__ = name
    return method


class Tracer(Array):
    """A value inside a transformation.

    >>> mpijax.eval_shape(lambda x: print(isinstance(x, mpijax.core.Tracer)) or x, 1.0).shape
    True
    ()
    """

    __slots__ = ("_trace", "__weakref__")
    __hash__ = None  # type: ignore[assignment]
    __array_priority__ = 1000

    _trace: Trace

    def __init__(self, trace: Trace, aval: ShapedArray):
        """For tracers of libraries: those of mpijax store or derive their types in ways of their own."""
        self._trace = trace
        self._aval = aval

    @property
    def aval(self) -> ShapedArray:
        return self._aval

    def concrete(self) -> Any | None:
        """The concrete value of this tracer if it is known now, else None."""
        return None

    def _origin_msg(self) -> str:
        """The origin of the value, for error messages."""
        return ""

    def _creation_msg(self) -> str:
        """A sentence with the source line that computed the value, if an equation recorded it."""
        return ""

    def _error_repr(self) -> str:
        return f"traced array with shape {self.aval.str_short(short_dtypes=False)}"

    shape = property(lambda self: self.aval.shape)
    dtype = property(lambda self: self.aval.dtype)
    ndim = property(lambda self: self.aval.ndim)
    size = property(lambda self: self.aval.size)
    weak_type = property(lambda self: self.aval.weak_type)
    itemsize = property(lambda self: self.aval.dtype.itemsize)
    nbytes = property(lambda self: self.aval.nbytes)
    mat = property(lambda self: self.aval.mat)

    def __len__(self) -> int:
        return len(self.aval)

    def __getattr__(self, name: str) -> Any:
        """Import the methods of the NumPy layer, or say why the attribute is missing. Called for missing ones only."""
        if name in _OF_MEMORY:
            text = f"{_OF_MEMORY[name].format(name)} on {self._error_repr()}."
            raise errors.ConcretizationTypeError(self, text)
        if name == "sharding":  # hasattr and getattr with a default work, as in JAX
            raise AttributeError(
                f"The 'sharding' attribute is not available on {self._error_repr()}. To query sharding information on "
                "tracers, use `jax.typeof(x)`."
            )
        if name in ("block_until_ready", "copy_to_host_async"):
            origin = f"\n{self._origin_msg()}" if self._origin_msg() else ""
            raise AttributeError(f"The {name!r} method is not available on {self._error_repr()}.{origin}")
        if name not in ("aval", "_aval") and self.aval.is_high:
            return lent(self, name)
        return load_then_getattr(self, name)

    def _known_scalar(self, error, *extra):
        known = self.concrete()
        if known is None:
            raise error(self, *extra)
        return known

    def __bool__(self) -> bool:
        _check_scalar(self, "bool")
        return bool(self._known_scalar(errors.TracerBoolConversionError))

    def __int__(self) -> int:
        _check_scalar(self, "int")
        return int(self._known_scalar(errors.ConcretizationTypeError, _scalar_hint("int")))

    def __float__(self) -> float:
        _check_scalar(self, "float")
        return float(self._known_scalar(errors.ConcretizationTypeError, _scalar_hint("float")))

    def __complex__(self) -> complex:
        _check_scalar(self, "complex")
        return complex(self._known_scalar(errors.ConcretizationTypeError, _scalar_hint("complex")))

    def __index__(self) -> int:
        if self.ndim or not dtypes.issubdtype(self.dtype, np.integer):
            raise TypeError("Only integer scalar arrays can be converted to a scalar index.")
        known = self._known_scalar(errors.TracerIntegerConversionError)
        return known.__index__()

    def __array__(self, *_args, **_kwargs):
        raise errors.TracerArrayConversionError(self)

    def _known_value(self, method: str):
        return self._known_scalar(
            errors.ConcretizationTypeError, f"The {method}() method was called on {self._error_repr()}."
        )

    def tolist(self):
        return self._known_value("tolist").tolist()

    def item(self, *args):
        return self._known_value("item").item(*args)

    def tobytes(self, order="C"):
        return np.asarray(self._known_value("tobytes")).tobytes(order)

    def __reduce__(self):
        raise errors.ConcretizationTypeError(
            self,
            "The error occurred in the __reduce__ method, which may indicate an attempt to serialize/pickle a traced "
            "value. mpi4py's lower-case methods (comm.allreduce) pickle their arguments: use the functions of "
            "mpijax.mpi instead.",
        )

    def __deepcopy__(self, _memo):
        return self.copy()  # type: ignore[attr-defined]  # one of numpy's methods

    def __copy__(self):
        return self.copy()  # type: ignore[attr-defined]

    addressable_data = _of_memory("addressable_data")
    delete = _of_memory("delete")
    devices = _of_memory("devices")
    is_deleted = _of_memory("is_deleted")
    on_device_size_in_bytes = _of_memory("on_device_size_in_bytes")
    unsafe_buffer_pointer = _of_memory("unsafe_buffer_pointer")
    copy_to_host_async = property(lambda self: self.__getattr__("copy_to_host_async"))

    def _contents(self) -> str:
        return f"{self.aval.str_short(short_dtypes=False)}"

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self._contents()})"

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        if spec:
            raise TypeError(
                f"unsupported format string passed to {type(self).__name__}.__format__: a traced value has "
                "no digits to format. Print values with jax.debug.print."
            )
        return str(self)


def _scalar_hint(kind: str) -> str:
    return (
        f"The problem arose with the `{kind}` function. If trying to convert the data type of a value, "
        f"try using `x.astype({kind})` or `jnp.array(x, {kind})` instead."
    )


def _check_scalar(tracer: Tracer, kind: str) -> None:
    if kind == "bool":
        if tracer.aval.size != 1:
            which = "an array with more than one element" if tracer.aval.size else "an empty array"
            raise ValueError(f"The truth value of {which} is ambiguous. Use a.any() or a.all()")
    elif tracer.aval.shape != ():
        raise TypeError(f"Only scalar arrays can be converted to Python scalars; got arr.ndim={tracer.aval.ndim}")


def check_alive(tracer: Tracer) -> None:
    """Raise UnexpectedTracerError if the trace that made `tracer` has ended."""
    if getattr(tracer._trace, "finished", False):
        raise leaked(tracer)


def leaked(tracer: Tracer) -> errors.UnexpectedTracerError:
    """The error for a value that is used outside of its transformation."""
    return errors.UnexpectedTracerError(leak_message(tracer, tracer._trace))


def leak_message(tracer: Tracer | None, trace) -> str:
    debug = getattr(trace, "debug", None)
    where = (
        f" The function being traced when the value leaked was {debug.func_src_info} traced for {debug.traced_for}."
        if debug
        else ""
    )
    made = "" if tracer is None else tracer._creation_msg()
    what = (
        f"an intermediate value with type {tracer.aval.str_short(short_dtypes=False)}"
        if tracer is not None
        else "an operation"
    )
    return (
        "Encountered an unexpected tracer. A function transformed by JAX had a side effect, allowing for a "
        f"reference to {what} wrapped in a {type(tracer).__name__ if tracer is not None else 'tracer'} to "
        "escape the scope of the transformation.\nJAX transformations require that functions explicitly "
        f"return their outputs, and disallow saving intermediate values to global state.{where}{made}\n"
        "To catch the leak earlier, try setting the environment variable JAX_CHECK_TRACER_LEAKS or using the "
        "`jax.checking_leaks` context manager."
    )


# ---------------------------------------------------------------- tracers that outlive their trace

# The caller's variable, the argument of this function, and the argument of `sys.getrefcount`.
_OWN_REFERENCES = 3


def check_leaks(trace: Any, debug: Any) -> None:
    """Raise if an object outside the trace still references a tracer of a finished trace.

    First clears the trace's own table of constants. Runs the garbage collector, so that unreachable tracers in cycles
    do not count.
    """
    getattr(trace, "_const_tracers", {}).clear()
    if sys.getrefcount(trace) == _OWN_REFERENCES:
        return
    gc.collect()
    leaked = [x for x in gc.get_referrers(trace) if isinstance(x, Tracer) and x._trace is trace]
    if not leaked:
        return
    lines = []
    for tracer in leaked:
        holders = [h for h in gc.get_referrers(tracer) if h is not leaked and not _is_frame(h)]
        kinds = ", ".join(sorted({type(h).__name__ for h in holders})) or "an unknown object"
        lines.append(f"{tracer!r}, held by: {kinds}")
    where = (
        f" The function being traced was {debug.func_src_info}, traced for {debug.traced_for}."
        if debug
        else ""
    )
    listed = "\n  ".join(lines)
    raise Exception(
        f"Leaked trace: {len(leaked)} traced value(s) outlive the function in which they were made.{where}\n "
        f" {listed}\nReturn values from the transformed function instead of storing them in globals, "
        "attributes or lists."
    )


def _is_frame(x: Any) -> bool:
    return type(x).__name__ == "frame"
