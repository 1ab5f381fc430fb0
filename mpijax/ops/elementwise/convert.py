"""Converts dtypes: by value, and by reinterpreting bits."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.state import state
from mpijax.core.base.warn import warn_user
from mpijax.core.rules import sum_types
from mpijax.core.rules.lowering import Decompose, Elementwise, Meaning, Zeros
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.jaxpr_trace import literal_value
from mpijax.core.tracing.trace import EVAL
from mpijax.core.types.array_api import Array
from mpijax.core.types.avals import ShapedArray, from_host
from mpijax.core.types.typeof import typeof
from mpijax.ops.families import CONSTANT, NOT_LINEAR, hide_unset, scalar_rule
from mpijax.ops.rules import full_like
from mpijax.transforms import key_reuse
from mpijax.transforms.zeros import Zero

# ---------------------------------------------------------------- stage


def stage(x: Any, /) -> Any:
    """A Python scalar or NumPy array as a value of the current trace; outside traces, as an array.

    >>> lax.stage(np.arange(3))
    Array([0, 1, 2], dtype=int32)
    """
    if isinstance(x, Array):
        return x
    if hasattr(x, "__jax_array__"):
        return stage(x.__jax_array__())
    return _staged(x, typeof(x))


asarray = stage


def _staged(x: Any, aval: ShapedArray) -> Any:
    trace = state.trace.recorder()
    value = np.asarray(x).astype(aval.dtype, copy=False)
    if trace is None:
        return from_host(value, aval)
    if aval.dtype != dtypes.canonicalize_dtype(aval.dtype):
        return trace.lift(from_host(value, aval))
    if aval.shape or aval.weak_type:
        # A weakly typed scalar is a Python number.
        return trace.lift(
            value if aval.shape else x if type(x) in dtypes.python_scalar_dtypes else value.item()
        )
    return trace.lift(value[()])


class _StagePrimitive(Primitive):
    """Makes its operand a value of the program being traced, without an equation."""

    def bind(self, x: Any) -> Any:  # type: ignore[override]
        return stage(x)


stage_p = _StagePrimitive(
    "stage",
    type_rule=lambda x: x,
    reference=lambda x: x,
    lower=Decompose(lambda x: x),
    jvp=lambda primals, tangents: (*primals, *tangents),
    transpose=lambda ct, x: [ct],
    batch=lambda axis, args, dims: (*args, *dims),
    keys=key_reuse.SAME,
)

# ---------------------------------------------------------------- convert_element_type


def convert_element_type(operand: Any, new_dtype: Any) -> Any:
    """`operand` with values converted to `new_dtype`; unchanged if it already has that dtype.

    Floats are truncated towards zero to integers. Values out of range become the nearest representable one,
    and NaN becomes 0. Conversion to bool gives True for all values but 0.

    >>> lax.convert_element_type(jnp.array([-1.7, 2.9]), jnp.int32)
    Array([-1,  2], dtype=int32)
    """
    return convert(operand, new_dtype, weak_type=False)


def convert(operand: Any, new_dtype: Any = None, weak_type: bool = False, sharding: Any = None) -> Any:
    """Like `convert_element_type`, but can keep or set a weak type. Without dtype, keeps the operand's."""
    operand = operand.__jax_array__() if hasattr(operand, "__jax_array__") else operand
    if new_dtype is None:
        new_dtype = typeof(operand).dtype
    elif isinstance(new_dtype, type) and new_dtype in (bool, int, float, complex):
        new_dtype = dtypes.dtype(new_dtype)
    elif not isinstance(new_dtype, (np.dtype, dtypes.ExtendedDType)):
        new_dtype = dtypes.dtype(new_dtype)
    new_dtype = dtypes.granted_dtype(new_dtype)
    if type(operand) is int and dtypes.issubdtype(new_dtype, np.inexact):
        operand = float(operand)  # may exceed every integer dtype
    elif type(operand) is int and dtypes.issubdtype(new_dtype, np.integer) and not -(2**31) <= operand < 2**31:
        operand = np.asarray(operand).astype(new_dtype)  # wraps around, as in NumPy
    old = typeof(operand)
    if old.dtype == new_dtype and old.weak_type == bool(weak_type):
        return stage(operand)
    if isinstance(new_dtype, dtypes.ExtendedDType) or isinstance(old.dtype, dtypes.ExtendedDType):
        return _convert_extended(operand, old.dtype, new_dtype)
    if old.dtype.kind == "c" and new_dtype.kind not in "cb":
        message = "Casting complex values to real discards the imaginary part"
        warn_user(message, np.exceptions.ComplexWarning)
    if (
        old.shape == ()
        and not isinstance(operand, Array)
        or state.trace is EVAL
        and isinstance(operand, np.ndarray)
    ):
        with np.errstate(all="ignore"):
            value = _to_dtype(np.asarray(operand), new_dtype)
        return _staged(value, ShapedArray(old.shape, new_dtype, weak_type))
    return convert_element_type_p.bind(
        operand, new_dtype=new_dtype, weak_type=bool(weak_type), sharding=sharding
    )


def _convert_extended(operand: Any, old: Any, new: Any) -> Any:
    if not isinstance(new, dtypes.ExtendedDType):
        return registry["from_edtype"].bind(operand, dtype=new)
    if isinstance(old, dtypes.ExtendedDType):
        raise ValueError(
            f"cannot directly convert between extended dtypes: from {old} to {new}. Convert by way of their "
            f"representation dtypes: {old} -> {old.physical_dtype} -> {new.physical_dtype} -> {new}."
        )
    return registry["to_edtype"].bind(operand, edtype=new)


def _to_dtype(x: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Converts values, saturating from floats to integers."""
    if x.dtype.kind == "c" and dtype.kind not in "cb":
        x = x.real
    if dtypes.issubdtype(dtype, np.integer) and dtypes.issubdtype(x.dtype, np.floating):
        limits = dtypes.iinfo(dtype)
        whole = np.trunc(x.astype(np.float64))
        # Comparisons instead of a clip: the largest int64 is not representable as float64.
        safe = np.where((whole >= limits.min) & (whole < float(limits.max)), whole, 0).astype(dtype)
        return np.where(
            whole >= float(limits.max), limits.max, np.where(whole < limits.min, limits.min, safe)
        ).astype(dtype)
    if dtype == np.bool_:
        return x != 0
    return x.astype(dtype)


def _convert_type(x: ShapedArray, *, new_dtype, weak_type, sharding=None) -> ShapedArray:
    if dtypes.issubdtype(x.dtype, dtypes.extended) and new_dtype != x.dtype:
        raise TypeError(f"{x.str_short(True)} cannot be converted to {new_dtype}")
    return ShapedArray(x.shape, new_dtype, weak_type)


def _convert_jvp(primals, tangents, *, new_dtype, weak_type, sharding=None):
    (x,), (t,) = primals, tangents
    out = convert_element_type_p.bind(x, new_dtype=new_dtype, weak_type=weak_type, sharding=sharding)
    if type(t) is Zero or not dtypes.issubdtype(new_dtype, np.inexact):
        return out, Zero.of_primal(out)
    return out, convert_element_type_p.bind(t, new_dtype=new_dtype, weak_type=weak_type, sharding=sharding)


def _convert_transpose(ct, x, *, new_dtype, weak_type, sharding=None):
    aval = x.aval
    if typeof(ct).dtype == aval.dtype and typeof(ct).weak_type == aval.weak_type:
        return [ct]
    return [
        convert_element_type_p.bind(ct, new_dtype=aval.dtype, weak_type=aval.weak_type, sharding=sharding)
    ]


def _convert_batch(axis, args, dims, *, sharding=None, **params):
    return convert_element_type_p.bind(*args, sharding=axis.of_batch(sharding, dims[0]), **params), dims[0]


class _Convert(Primitive):
    """The conversion primitive. A number that is known during tracing is converted immediately."""

    def bind(self, operand, *, new_dtype, weak_type, sharding=None):
        known = operand if isinstance(operand, (int, float, complex, np.generic)) else literal_value(operand)
        if known is not None and isinstance(new_dtype, np.dtype):
            aval = ShapedArray((), new_dtype, weak_type)
            if typeof(known) is aval:
                return _staged(known, aval)
            with np.errstate(all="ignore"):
                value = _to_dtype(np.asarray(known), new_dtype)
            number = value.item() if weak_type else value[()]
            if typeof(number) is aval:
                return _staged(number, aval)
        return super().bind(operand, new_dtype=new_dtype, weak_type=weak_type, sharding=sharding)


convert_element_type_p = _Convert(
    "convert_element_type",
    type_rule=_convert_type,
    reference=lambda x, *, new_dtype, weak_type, sharding=None: _to_dtype(x, new_dtype),
    lower=Elementwise(scalar_rule("convert_element_type"), zeros=Zeros.PASSED, meaning=Meaning.CONVERSION),
    jvp=_convert_jvp,
    transpose=_convert_transpose,
    batch=_convert_batch,
    pretty=hide_unset("sharding"),
    keys=key_reuse.SAME,
    sums=sum_types.linear,
)

# ---------------------------------------------------------------- bitcast_convert_type


def bitcast_convert_type(operand: Any, new_dtype: Any) -> Any:
    """The bits of `operand` reinterpreted as `new_dtype`.

    A dtype that is k times narrower adds a last axis of size k; a dtype that is k times wider
    consumes a last axis of size k.

    >>> lax.bitcast_convert_type(jnp.float32(1), jnp.int32)
    Array(1065353216, dtype=int32)
    """
    return bitcast_convert_type_p.bind(operand, new_dtype=dtypes.granted_dtype(dtypes.dtype(new_dtype)))


def _bitcast_type(x: ShapedArray, *, new_dtype) -> ShapedArray:
    old, new = x.dtype, new_dtype
    if old != new and (old.kind in "bc" or new.kind in "bc"):
        raise TypeError(
            "lax.bitcast_convert_type does not support bool or complex values unless the operand and "
            f"destination types match. Got operand dtype={old}, {new_dtype=}. "
            "Consider using the arr.view() method instead."
        )
    old_bits, new_bits = dtypes.itemsize_bits(old), dtypes.itemsize_bits(new)
    shape = x.shape
    if old_bits < new_bits:
        if not shape or shape[-1] * old_bits != new_bits:
            size = f"{shape[-1]} * " if shape else ""
            raise ValueError(
                f"Attempting to convert array of shape {shape} from {old} of size {old_bits} bits to {new} "
                f"of size {new_bits}, bits but {size}{old_bits} != {new_bits}"
            )
        shape = shape[:-1]
    elif old_bits > new_bits:
        shape = (*shape, old_bits // new_bits)
    return ShapedArray(shape, new)


def _bitcast_reference(x, *, new_dtype):
    old, new = map(dtypes.itemsize_bits, (x.dtype, new_dtype))
    x = np.ascontiguousarray(x).reshape(x.shape)
    if old == new:
        return x.view(new_dtype)
    if min(old, new) < 8:
        return _bitcast_narrow_reference(x, new_dtype, old, new)
    if old > new:
        return x[..., None].view(new_dtype)
    return x.view(new_dtype)[..., 0]


def _bitcast_narrow_reference(x: np.ndarray, new_dtype: Any, old: int, new: int) -> np.ndarray:
    """To or from elements of less than a byte. NumPy stores each of these in its own byte."""
    wide = _unsigned(max(old, new, 8))
    if old > new:
        places = new * np.arange(old // new, dtype=wide)
        pieces = (x.view(_unsigned(old)).astype(wide)[..., None] >> places) & wide.type((1 << new) - 1)
        return pieces.astype(_unsigned(new)).view(new_dtype)
    places = old * np.arange(new // old, dtype=wide)
    whole = (x.view(_unsigned(old)).astype(wide) << places).sum(-1, dtype=wide)
    return whole.astype(_unsigned(new)).view(new_dtype)


def _unsigned(bits: int) -> np.dtype:
    """The unsigned integer dtype with this number of bits."""
    return np.dtype(f"u{bits // 8}") if bits >= 8 else np.dtype(getattr(ml_dtypes, f"uint{bits}"))


def _bitcast_pieces(x, *, new_dtype):
    """Bitcasts between widths by shifting unsigned integers; the lowest bits come first."""
    aval = typeof(x)
    old, new = map(dtypes.itemsize_bits, (aval.dtype, new_dtype))
    bits = bitcast_same_width_p.bind
    if old == new:
        return x if aval.dtype == new_dtype else bits(x, new_dtype=new_dtype)
    iota = registry["iota"].bind
    # Elements of less than a byte are shifted as bytes.
    wide = _unsigned(max(old, new, 8))
    x = convert(bits(x, new_dtype=_unsigned(old)), wide)
    if old > new:
        shape = (*aval.shape, old // new)
        x = registry["broadcast_in_dim"].bind(
            x, shape=shape, broadcast_dimensions=tuple(range(aval.ndim)), sharding=None
        )
        place = iota(dtype=wide, shape=shape, dimension=aval.ndim, sharding=None)
        shifts = registry["mul"].bind(place, full_like(place, new))
        piece = registry["shift_right_logical"].bind(x, shifts)
        if new < 8:
            piece = registry["and"].bind(piece, full_like(piece, (1 << new) - 1))
        return bits(convert(piece, _unsigned(new)), new_dtype=new_dtype)
    place = iota(dtype=wide, shape=aval.shape, dimension=aval.ndim - 1, sharding=None)
    shifted = registry["shift_left"].bind(x, registry["mul"].bind(place, full_like(place, old)))
    whole = registry["reduce_sum"].bind(shifted, axes=(aval.ndim - 1,), out_sharding=None)
    return bits(convert(whole, _unsigned(new)), new_dtype=new_dtype)


def _bitcast_batch(axis, args, dims, *, new_dtype):
    (x,), (dim,) = args, dims
    old, new = map(dtypes.itemsize_bits, (typeof(x).dtype, new_dtype))
    if old < new and dim == typeof(x).ndim - 1:
        x = registry["transpose"].bind(x, permutation=(dim, *range(dim)))
        dim = 0
    return bitcast_convert_type_p.bind(x, new_dtype=new_dtype), dim


bitcast_convert_type_p = Primitive(
    "bitcast_convert_type",
    type_rule=_bitcast_type,
    reference=_bitcast_reference,
    lower=Decompose(_bitcast_pieces),
    jvp=NOT_LINEAR,
    transpose=NOT_LINEAR,
    batch=_bitcast_batch,
)
# The primitive that the compiler lowers.
bitcast_same_width_p = Primitive(
    "bitcast_same_width",
    type_rule=_bitcast_type,
    reference=_bitcast_reference,
    lower=Elementwise(scalar_rule("bitcast_convert_type"), 1),
    jvp=NOT_LINEAR,
    transpose=NOT_LINEAR,
    batch=NOT_LINEAR,
)
bitcast_convert_type_p.jvp = CONSTANT.attach(bitcast_convert_type_p)
