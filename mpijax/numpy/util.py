"""What all of `mpijax.numpy` does with its arguments: check them, promote dtypes and ranks, read axes.

The eager path of `x + y` goes through here, so the usual cases (arrays of one dtype, an array and a Python
number) leave after a few attribute reads; everything else takes the general way below them.
"""

from __future__ import annotations

import math
import operator
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from mpijax import lax
from mpijax.core import dtypes, errors
from mpijax.core.option import values as options
from mpijax.core.trace import Tracer, typeof
from mpijax.transforms.api import jit

FLOAT0 = dtypes.float0
_BOOL = np.dtype(bool)


# -- arguments that are arrays -------------------------------------------------------------------------------


def is_arraylike(x: Any) -> bool:
    """Whether x is an array, a traced value, a NumPy array or a scalar; lists and tuples are not."""
    return (
        getattr(x, "aval", None) is not None
        or isinstance(x, np.ndarray)
        or np.isscalar(x)
        or hasattr(x, "__jax_array__")
    )


def check_arraylike(fun_name: str, *args: Any, emit_warning: bool = False, stacklevel: int = 3) -> None:
    """Raise TypeError (or warn) unless all arguments are arrays or scalars."""
    for position, x in enumerate(args):
        if is_arraylike(x):
            continue
        message = f"{fun_name} requires ndarray or scalar arguments, got {type(x)} at position {position}."
        if not emit_warning:
            raise TypeError(message)
        warnings.warn(
            f"{message} In a future JAX release this will be an error.",
            DeprecationWarning,
            stacklevel=stacklevel,
        )
        return


def check_arraylike_or_none(fun_name: str, *args: Any) -> None:
    """As `check_arraylike`; None passes too."""
    for position, x in enumerate(args):
        if x is not None and not is_arraylike(x):
            raise TypeError(
                f"{fun_name} requires ndarray, scalar, or None arguments, got {type(x)} at position "
                f"{position}."
            )


def unwrap(x: Any) -> Any:
    """The array behind an object with a ``__jax_array__`` method; anything else unchanged."""
    method = getattr(x, "__jax_array__", None)
    return x if method is None else method()


def as_array(x: Any) -> Any:
    """An array or scalar as an Array (a tracer inside a transformation that writes a Jaxpr)."""
    if getattr(x, "aval", None) is not None:
        return x
    x = unwrap(x)
    if getattr(x, "aval", None) is not None:
        return x
    if not isinstance(x, (bool, int, float, complex, np.ndarray, np.generic)):
        raise TypeError(f"asarray: expected ArrayLike, got {x} of type {type(x)}.")
    return lax.stage(x)


def ensure_arraylike(fun_name: str, *args: Any) -> Any:
    """Check the arguments and return them as Arrays: one Array for one argument, else a tuple."""
    if len(args) == 1:
        x = args[0]
        if getattr(x, "aval", None) is not None:
            return x
    check_arraylike(fun_name, *args)
    if len(args) == 1:
        return as_array(args[0])
    return tuple(map(as_array, args))


def ensure_arraylike_tuple(fun_name: str, args: Sequence[Any]) -> tuple[Any, ...]:
    """Check the elements of a sequence and return them as a tuple of Arrays."""
    check_arraylike(fun_name, *args)
    return tuple(map(as_array, args))


def check_no_float0s(fun_name: str, *args: Any) -> None:
    """Raise TypeError for arrays of float0, the tangents of integers, which have no arithmetic."""
    if any(getattr(x, "dtype", None) == FLOAT0 for x in args):
        raise TypeError(
            f"Called {fun_name} with a float0 array. float0s are the tangents of integer and bool values "
            "and support no operations: they are never converted implicitly. np.zeros_like(arr, "
            "dtype=float) makes an array of zeros of one.\nIf you didn't expect to get a float0 you might "
            "have accidentally taken a gradient with respect to an integer argument."
        )


def check_no_mixed_keys(fun_name: str, *args: Any) -> None:
    """Raise TypeError when PRNG keys stand beside numbers."""
    kinds = [dtypes.dtype(x) for x in args]
    if len(set(kinds)) > 1 and any(isinstance(d, dtypes.ExtendedDType) for d in kinds):
        raise TypeError(f"{fun_name} does not accept dtypes {', '.join(map(str, kinds))}.")


# -- dtypes --------------------------------------------------------------------------------------------------


def dtype_of(x: Any) -> Any:
    """The dtype of an array or scalar."""
    aval = getattr(x, "aval", None)
    return dtypes.dtype(x) if aval is None else aval.dtype


def shape_of(x: Any) -> tuple[int, ...]:
    """The shape of an array or scalar."""
    aval = getattr(x, "aval", None)
    return np.shape(x) if aval is None else aval.shape


def convert(x: Any, dtype: Any, weak_type: bool = False, warn: bool = True) -> Any:
    """`x` with a dtype and weak type, itself if it has them. Scalars stay scalars, to become literals.

    Complex numbers lose their imaginary part, with a warning if `warn`.
    """
    aval = getattr(x, "aval", None)
    if aval is None:
        if not isinstance(x, np.ndarray) or x.ndim == 0:
            return _convert_scalar(x, dtype, weak_type)
        x = np.asarray(x, dtypes.canonicalize_dtype(x.dtype))
        if x.dtype == dtype and not weak_type:
            return x
    elif aval.dtype == dtype and aval.weak_type == weak_type:
        return x
    if isinstance(dtype, dtypes.ExtendedDType):
        return lax.convert_element_type(x, dtype)
    if warn and x.dtype.kind == "c" and dtype.kind != "c":
        _warn_of_lost_imaginary_part()
    return lax.convert_element_type_p.bind(x, new_dtype=dtype, weak_type=weak_type, sharding=None)


def _warn_of_lost_imaginary_part() -> None:
    warnings.warn(
        "Casting complex values to real discards the imaginary part",
        np.exceptions.ComplexWarning,
        stacklevel=4,
    )


def _convert_scalar(x: Any, dtype: Any, weak_type: bool) -> Any:
    if isinstance(x, int):
        typeof(x)  # raises OverflowError for a number that the default int cannot hold
    value = np.asarray(x)
    if value.dtype.kind == "c" and dtype.kind != "c":
        _warn_of_lost_imaginary_part()
        value = value.real
    with np.errstate(all="ignore"):
        value = value.astype(dtype)
    if not weak_type:
        return value[()]
    of = dtypes.python_type(dtype)
    if of is not None and dtypes.dtype(of) == dtype:
        # A number that is of the type already is not rounded: it is rounded where it is used.
        return x if type(x) is of else of(value)
    return lax.convert_element_type_p.bind(value[()], new_dtype=dtype, weak_type=True, sharding=None)


def scalar_like(x: Any, value: Any) -> Any:
    """A constant with the dtype of x, to use beside it: weakly typed only if x is a weakly typed scalar."""
    aval = getattr(x, "aval", None)
    if aval is None:
        dtype = dtypes.dtype(x)
        weak_scalar = type(x) in dtypes.python_scalar_dtypes
    else:
        dtype = aval.dtype
        weak_scalar = aval.weak_type and not aval.shape
    if weak_scalar:
        value = dtypes.python_type(dtype)(value)
        if dtypes.dtype(value) == dtype:
            return value
    return np.asarray(value, dtype)[()]


def strong_like(x: Any, value: Any) -> Any:
    """A constant with the dtype of x that is not weakly typed."""
    return np.asarray(value, dtype_of(x))[()]


def zero_like(x: Any) -> Any:
    """0 with the dtype of x."""
    return scalar_like(x, 0)


def number_beside(x: Any, value: Any) -> Any:
    """A Python number as an operand beside the array x, with x's dtype and weak type."""
    return convert(value, x.dtype, x.aval.weak_type)


def requested_dtype(dtype: Any, fun_name: str) -> Any:
    """A ``dtype=`` argument, canonical; None stays None."""
    return None if dtype is None else dtypes.check_user_dtype_supported(dtype, fun_name)


def is_float(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.floating)


def is_complex(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.complexfloating)


def is_integer(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.integer)


def is_inexact(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.inexact)


# -- promotion -----------------------------------------------------------------------------------------------


def _promote_to(args: Sequence[Any], raised: Callable[[Any], Any]) -> list[Any]:
    dtype, weak_type = dtypes.lattice_result_type(*args)
    dtype = raised(dtype)
    return [convert(x, dtype, weak_type) for x in args]


def promote_dtypes(*args: Any) -> list[Any]:
    """All arguments in the dtype they promote to."""
    if len(args) < 2:
        return list(map(as_array, args))
    dtype, weak_type = dtypes.lattice_result_type(*args)
    return [convert(x, dtype, weak_type) for x in args]


def promote_dtypes_inexact(*args: Any) -> list[Any]:
    """As `promote_dtypes`, and bool and integers become floats."""
    return _promote_to(args, dtypes.to_inexact_dtype)


def promote_dtypes_numeric(*args: Any) -> list[Any]:
    """As `promote_dtypes`, and bool becomes int32."""
    return _promote_to(args, dtypes.to_numeric_dtype)


def promote_dtypes_complex(*args: Any) -> list[Any]:
    """As `promote_dtypes`, and everything becomes complex."""
    return _promote_to(args, dtypes.to_complex_dtype)


def promote_shapes(fun_name: str, *args: Any) -> list[Any]:
    """Give arrays of different ranks leading axes of size 1; lax takes scalars beside arrays as they are."""
    shapes = [shape_of(x) for x in args]
    ranks = {len(shape) for shape in shapes if shape}
    if len(ranks) < 2:
        return list(args)
    if options.jax_numpy_rank_promotion != "allow":
        _complain_of_rank_promotion(fun_name, shapes)
    rank = len(lax.broadcast_shapes(*shapes))
    return [lax.broadcast_to_rank(x, rank) for x in args]


def _complain_of_rank_promotion(fun_name: str, shapes: Sequence[tuple[int, ...]]) -> None:
    given = " ".join(map(str, shapes))
    page = "For more information, see https://docs.jax.dev/en/latest/rank_promotion_warning.html."
    if options.jax_numpy_rank_promotion == "raise":
        raise ValueError(
            f"Operands could not be broadcast together for {fun_name} on shapes {given} and with the config "
            f"option jax_numpy_rank_promotion='raise'. {page}"
        )
    warnings.warn(
        f"Following NumPy automatic rank promotion for {fun_name} on shapes {given}. Set the "
        f"jax_numpy_rank_promotion config option to 'allow' to disable this warning. {page}",
        stacklevel=4,
    )


def _promote(fun_name: str, args: Sequence[Any], promotion: Callable[..., list[Any]]) -> list[Any]:
    check_arraylike(fun_name, *args)
    args = [unwrap(x) for x in args]
    check_no_float0s(fun_name, *args)
    check_no_mixed_keys(fun_name, *args)
    return promote_shapes(fun_name, *map(_staged_if_python, promotion(*args)))


def _staged_if_python(x: Any) -> Any:
    """Python scalars (weakly typed operands) as Arrays, so that all operands have a dtype and a shape."""
    return lax.stage(x) if type(x) in dtypes.python_scalar_dtypes else x


# A Python number beside an array whose kind is at least as wide takes the array's dtype, whatever the
# options.
_KIND_ORDER = {bool: 0, int: 1, float: 2, complex: 3}
_SCALAR_TYPES: dict[tuple[Any, type], type] = {
    (dtype, kind): dtype.type
    for dtype in dtypes.valid_dtypes
    if dtype != FLOAT0
    for kind in (int, float, complex)
    if _KIND_ORDER[dtypes.python_type(dtype)] >= _KIND_ORDER[kind]
}
_INT_LIMIT = 1 << 31


def promote_args(fun_name: str, *args: Any) -> list[Any]:
    """The operands of a function in their common dtype and rank; TypeError for what is no array."""
    return _promote(fun_name, args, promote_dtypes)


def _ranks_agree(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    return len(a) == len(b) or not a or not b


def promote_pair(fun_name: str, x: Any, y: Any) -> Any:
    """`promote_args` for two operands, quick in the usual cases."""
    try:
        a = x.aval
    except AttributeError:
        return _promote(fun_name, (x, y), promote_dtypes)
    kind = type(y)
    if kind is float or kind is int:
        scalar = _SCALAR_TYPES.get((a.dtype, kind))
        if scalar is not None and not a.weak_type and (kind is float or -_INT_LIMIT <= y < _INT_LIMIT):
            try:
                return x, scalar(y)
            except OverflowError:
                pass
        return _promote(fun_name, (x, y), promote_dtypes)
    try:
        b = y.aval
    except AttributeError:
        return _promote(fun_name, (x, y), promote_dtypes)
    if a is b or (a.dtype is b.dtype and a.weak_type is b.weak_type and _ranks_agree(a.shape, b.shape)):
        if a.dtype is not FLOAT0 and not (a.weak_type and a.dtype == _BOOL):
            return x, y
    return _promote(fun_name, (x, y), promote_dtypes)


def promote_args_inexact(fun_name: str, *args: Any) -> list[Any]:
    """As `promote_args`, and bool and integers become floats."""
    return _promote(fun_name, args, promote_dtypes_inexact)


def promote_args_numeric(fun_name: str, *args: Any) -> list[Any]:
    """As `promote_args`, and bool becomes int32."""
    return _promote(fun_name, args, promote_dtypes_numeric)


def promote_args_complex(fun_name: str, *args: Any) -> list[Any]:
    """As `promote_args`, and everything becomes complex."""
    return _promote(fun_name, args, promote_dtypes_complex)


# -- static arguments: axes, sizes, shapes -------------------------------------------------------------------


def static(x: Any, context: str, force: Callable[[Any], Any] | None = None) -> Any:
    """The value of an argument that must be known while tracing, passed through `force`.

    Raises:
        ConcretizationTypeError: it is a traced value; the message contains `context`.
    """
    if isinstance(x, Tracer):
        known = x.concrete()
        if known is None:
            raise errors.ConcretizationTypeError(x, context)
        x = known
    return x if force is None else force(x)


def static_int(x: Any, context: str) -> int:
    return static(x, context, operator.index)


def canonical_axis(axis: Any, ndim: int) -> int:
    """An axis counted from the front."""
    axis = operator.index(axis)
    if not -ndim <= axis < ndim:
        raise ValueError(f"axis {axis} is out of bounds for array of dimension {ndim}")
    return axis + ndim if axis < 0 else axis


def canonical_axes(axes: Any, ndim: int) -> tuple[int, ...]:
    """Axes counted from the front: None stands for all, an int for itself."""
    if axes is None:
        return tuple(range(ndim))
    if isinstance(axes, Sequence):
        axes = tuple(canonical_axis(a, ndim) for a in axes)
        if len(set(axes)) != len(axes):
            raise ValueError(f"duplicate value in 'axis': {axes}")
        return axes
    return (canonical_axis(axes, ndim),)


def index_tuple(x: Any) -> tuple[int, ...]:
    """An int or a sequence of ints, as a tuple."""
    x = static(x, "expected a static index or sequence of indices.")
    try:
        return (operator.index(x),)
    except TypeError:
        return tuple(map(operator.index, x))


def optional_axes(axis: Any) -> Any:
    """An ``axis=`` argument as None, an int, or a tuple of ints and axis names."""
    if axis is None or type(axis) is int:
        return axis
    axis = static(axis, "The axis argument must be known statically.")
    try:
        return operator.index(axis)
    except TypeError:
        return tuple(a if isinstance(a, str) else operator.index(a) for a in axis)


def canonical_shape(shape: Any, context: str = "") -> tuple[int, ...]:
    """A shape argument (an int or a sequence of ints) as a tuple of ints."""
    given = shape
    if not isinstance(shape, (tuple, list)) and np.ndim(shape) == 0:
        shape = (shape,)
    try:
        return tuple(map(operator.index, shape))
    except TypeError:
        pass
    where = f" {context}." if context else ""
    hint = ""
    if any(isinstance(d, Tracer) for d in shape):
        hint = "\nIf using `jit`, try using `static_argnums` or applying `jit` to smaller subfunctions."
    raise TypeError(
        f"Shapes must be 1D sequences of concrete values of integer type, got {given}.{where}{hint}"
    ) from None


# -- broadcasting --------------------------------------------------------------------------------------------


def broadcast_to(x: Any, shape: Any) -> Any:
    """`x` broadcast to a shape by NumPy's rules, as lax equations."""
    x = ensure_arraylike("broadcast_to", x)
    shape = canonical_shape(shape)
    have = x.shape
    if have == shape:
        return x
    if len(shape) < len(have):
        raise ValueError(f"Cannot broadcast to shape with fewer dimensions: arr_shape={have} shape={shape}")
    lead = len(shape) - len(have)
    if any(d not in (1, s) for d, s in zip(have, shape[lead:], strict=True)):
        requested = f"{x.dtype.name}[{','.join(map(str, shape))}]"
        raise ValueError(
            f"Incompatible types for broadcasting: input type={x.aval} and requested type={requested}: "
            "counted from the last axis, each axis of the input must have size 1 or the requested size."
        )
    return lax.broadcast_in_dim(x, shape, tuple(range(lead, len(shape))))


def broadcast_together(*args: Any) -> list[Any]:
    """Arrays broadcast to their common shape."""
    shapes = [shape_of(x) for x in args]
    if all(shape == shapes[0] for shape in shapes):
        return list(map(as_array, args))
    shape = lax.broadcast_shapes(*shapes)
    return [broadcast_to(x, shape) for x in args]


@jit
def _where(condition, x, y):
    """Elements of x where the condition holds, else of y. A program of its own: scalars stay scalars."""
    condition, x, y = ensure_arraylike("where", condition, x, y)
    if condition.dtype != np.bool_:
        condition = lax.ne(condition, zero_like(condition))
    x, y = promote_dtypes(x, y)
    if condition.ndim == 0:
        x, y = broadcast_together(x, y)
    else:
        condition, x, y = broadcast_together(condition, x, y)
    return lax.select(condition, x, y) if math.prod(x.shape) else x


# -- shape, ndim, size ---------------------------------------------------------------------------------------


def ndim(a: Any) -> int:
    """Number of axes of an array or scalar; lists are deprecated."""
    if hasattr(a, "ndim"):
        return a.ndim
    check_arraylike("ndim", a, emit_warning=True)
    return np.ndim(unwrap(a))


def shape(a: Any) -> tuple[int, ...]:
    """Shape of an array or scalar; lists are deprecated."""
    if hasattr(a, "shape"):
        return a.shape
    check_arraylike("shape", a, emit_warning=True)
    return np.shape(unwrap(a))


def size(a: Any, axis: int | Sequence[int] | None = None) -> int:
    """Number of elements of an array or scalar, or the product of its sizes along `axis`."""
    if axis is None and hasattr(a, "size"):
        return a.size
    if not hasattr(a, "shape"):
        check_arraylike("size", a, emit_warning=True)
    dims = np.shape(unwrap(a)) if not hasattr(a, "shape") else a.shape
    return math.prod(dims[i] for i in canonical_axes(axis, len(dims)))


def device_sharding(device: Any, out_sharding: Any, name: str) -> Any:
    """The placement asked for by the `device` or `out_sharding` argument of a creation function, or None."""
    if device is not None and out_sharding is not None:
        raise ValueError(
            f"Only one of `device` or `out_sharding` can be set in {name}. Got {device=} and {out_sharding=}"
        )
    return device if device is not None else out_sharding


def place(x: Any, sharding: Any) -> Any:
    """Put an array where `device_sharding` says; None leaves it where it is."""
    if sharding is None:
        return x
    from mpijax import device_put  # the placing of arrays lies above this layer

    return device_put(x, sharding)
