"""Defines dot_general (contraction of two arrays with batch axes) and functions built on it."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any, Union

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.option import values as options
from mpijax.core.rules import product_rules, sum_types
from mpijax.core.rules.lowering import Library
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops import same_bits
from mpijax.ops.products import over_ranks as dot_over_ranks
from mpijax.ops.products.algorithm import DotAlgorithm, DotAlgorithmPreset, algorithm_of
from mpijax.ops.rules import is_linear
from mpijax.ops.shapes.moves import index_tuple, shape_of
from mpijax.ops.shapes.reshape import transpose
from mpijax.transforms.zeros import Zero, add_tangents

DotDimensionNumbers = tuple[tuple[Sequence[int], Sequence[int]], tuple[Sequence[int], Sequence[int]]]

# ---------------------------------------------------------------- precision


class Precision(enum.Enum):
    """The precision of float32 products on accelerators. On CPUs all are equal.

    >>> lax.dot(jnp.ones((2, 3)), jnp.ones(3), precision=lax.Precision.HIGHEST)
    Array([3., 3.], dtype=float32)
    """

    DEFAULT = 0
    HIGH = 1
    HIGHEST = 2

    @classmethod
    def _missing_(cls, value):
        return _PRECISIONS.get(value)

    def __repr__(self) -> str:
        return f"Precision.{self.name}"

    def __str__(self) -> str:
        return self.name


_PRECISIONS = {
    "highest": Precision.HIGHEST, "float32": Precision.HIGHEST,
    "high": Precision.HIGH, "bfloat16_3x": Precision.HIGH, "tensorfloat32": Precision.HIGH,
    "default": Precision.DEFAULT, "bfloat16": Precision.DEFAULT, "fastest": Precision.DEFAULT,
}  # fmt: skip


PrecisionLike = Union[  # noqa: UP007
    str, Precision, tuple[str, str], tuple[Precision, Precision], DotAlgorithm, DotAlgorithmPreset, None
]


def canonicalize_precision(
    precision: PrecisionLike,
) -> tuple[Precision, Precision] | DotAlgorithm | DotAlgorithmPreset | None:
    """A precision for each operand, from one for both, a pair, or names. ValueError for others."""
    if precision is None:
        default = options.jax_default_matmul_precision
        return None if default is None else canonicalize_precision(default)
    if isinstance(precision, Precision):
        return precision, precision
    if isinstance(precision, str) and precision in _PRECISIONS:
        return (_PRECISIONS[precision],) * 2
    algorithm = algorithm_of(precision)
    if algorithm is not None:
        return algorithm
    if isinstance(precision, (list, tuple)) and len(precision) == 2:
        first, second = (_PRECISIONS.get(p) if isinstance(p, str) else p for p in precision)
        if isinstance(first, Precision) and isinstance(second, Precision):
            return first, second
    raise ValueError(
        "Precision argument must be one of:\n- None,\n"
        f"- a string in {list(_PRECISIONS)},\n"
        "- a lax.Precision value, or\n- a tuple of two lax.Precision values or strings;\n"
        f"but got {precision}."
    )


# ---------------------------------------------------------------- wrappers


def dot_general(
    lhs: Any,
    rhs: Any,
    dimension_numbers: DotDimensionNumbers,
    precision: Any = None,
    preferred_element_type: Any = None,
    *,
    out_sharding=None,
) -> Any:
    """See `dot`.

    >>> pairs = lax.dot_general(jnp.ones((5, 2, 3)), jnp.ones((5, 4, 3)), (((2,), (2,)), ((0,), (0,))))
    >>> pairs.shape
    (5, 2, 4)
    """
    return dot(
        lhs,
        rhs,
        dimension_numbers=dimension_numbers,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )


def dot(
    lhs: Any,
    rhs: Any,
    *,
    dimension_numbers: DotDimensionNumbers | None = None,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding=None,
) -> Any:
    """Contracts axes of two arrays, for each index of the batch axes.

    Args:
      dimension_numbers: `((lhs_contract, rhs_contract), (lhs_batch, rhs_batch))`; the last axis of
        lhs with the first of rhs if None, for operands of one or two axes.
      preferred_element_type: dtype of the result.
      out_sharding: the sharding of the result.

    Returns:
      An array with the batch axes, then the other axes of lhs, then those of rhs.

    >>> lax.dot(jnp.array([[1.0, 2.0], [3.0, 4.0]]), jnp.array([1.0, 1.0]))
    Array([3., 7.], dtype=float32)
    """
    if dimension_numbers is None:
        lhs_shape, rhs_shape = shape_of(lhs), shape_of(rhs)
        if not (1 <= len(lhs_shape) <= 2 and 1 <= len(rhs_shape) <= 2 and lhs_shape[-1] == rhs_shape[0]):
            raise ValueError(
                "jax.lax.dot: dimension_numbers must be specified when not performing simple un-batched "
                "matrix-matrix, "
                f"matrix-vector, or vector-vector products; got {lhs_shape=} {rhs_shape=}"
            )
        dimension_numbers = (((len(lhs_shape) - 1,), (0,)), ((), ()))
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    if preferred_element_type is not None:
        preferred_element_type = dtypes.check_user_dtype_supported(preferred_element_type, "dot")
    out = dot_general_p.bind(
        lhs,
        rhs,
        dimension_numbers=(
            (index_tuple(lhs_contract), index_tuple(rhs_contract)),
            (index_tuple(lhs_batch), index_tuple(rhs_batch)),
        ),
        precision=canonicalize_precision(precision),
        preferred_element_type=preferred_element_type,
        out_sharding=explicit_sharding(out_sharding, "dot_general"),
    )
    return with_out_sharding(out, out_sharding, "dot_general")


def batch_matmul(lhs: Any, rhs: Any, precision: Any = None) -> Any:
    """Products of matrices, which are in the last two axes of the operands.

    >>> lax.batch_matmul(jnp.ones((2, 1, 3)), jnp.ones((2, 3, 1))).shape
    (2, 1, 1)
    """
    m, n = typeof(lhs).ndim, typeof(rhs).ndim
    if min(m, n) < 2:
        raise ValueError(f"Arguments to batch_matmul must be at least 2D, got {m}, {n}")
    if m != n:
        raise ValueError(f"Arguments to batch_matmul must have same ndim, got {m}, {n}")
    batch = tuple(range(m - 2))
    return dot_general(lhs, rhs, (((m - 1,), (n - 2,)), (batch, batch)), precision=precision)


# ---------------------------------------------------------------- types


def _check_axes(side: str, aval: ShapedArray, contract, batch) -> None:
    if any(not 0 <= d < aval.ndim for d in (*contract, *batch)):
        raise TypeError(
            f"dot_general requires {side} dimension numbers to be nonnegative and less than the number of "
            "axes of the "
            f"{side} value, got {side}_batch of {batch} and {side}_contracting of {contract} for {side} of "
            f"rank {aval.ndim}"
        )
    if len(set(batch)) != len(batch):
        raise TypeError(
            f"dot_general requires {side} batch dimensions to be distinct, got {side}_batch {batch}."
        )
    if len(set(contract)) != len(contract):
        raise TypeError(
            f"dot_general requires {side} contracting dimensions to be distinct, got {side}_contracting "
            f"{contract}."
        )
    if set(batch) & set(contract):
        raise TypeError(
            f"dot_general requires {side} batch dimensions to be disjoint from contracting dimensions, got "
            f"{side}_batch {batch} and {side}_contracting {contract}."
        )


def _free(ndim: int, contract, batch) -> list[int]:
    return [d for d in range(ndim) if d not in contract and d not in batch]


def _dot_shape(lhs, rhs, dimension_numbers):
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    _check_axes("lhs", lhs, lhs_contract, lhs_batch)
    _check_axes("rhs", rhs, rhs_contract, rhs_batch)
    if len(lhs_batch) != len(rhs_batch):
        raise TypeError(
            "dot_general requires equal numbers of lhs_batch and rhs_batch dimensions, got lhs_batch "
            f"{lhs_batch} and rhs_batch {rhs_batch}."
        )
    batch, other = tuple(lhs.shape[d] for d in lhs_batch), tuple(rhs.shape[d] for d in rhs_batch)
    if batch != other:
        raise TypeError(
            "dot_general requires lhs batch dimensions and rhs batch dimensions to have the same shape, got "
            f"{batch} and {other}."
        )
    summed, other = tuple(lhs.shape[d] for d in lhs_contract), tuple(rhs.shape[d] for d in rhs_contract)
    if summed != other:
        raise TypeError(
            f"dot_general requires contracting dimensions to have the same shape, got {summed} and {other}."
        )
    lhs_free = tuple(lhs.shape[d] for d in _free(lhs.ndim, lhs_contract, lhs_batch))
    rhs_free = tuple(rhs.shape[d] for d in _free(rhs.ndim, rhs_contract, rhs_batch))
    return batch + lhs_free + rhs_free


def _rank_of(dtype) -> tuple:
    """The order of dtypes: the product of two operand types has the higher one. This is XLA's order."""
    is_complex = dtype.kind == "c"
    real = np.dtype(f"f{dtype.itemsize // 2}") if is_complex else dtype
    if dtypes.issubdtype(real, np.floating):
        info = dtypes.finfo(real)
        exponent, mantissa = info.maxexp, info.nmant
    else:
        exponent = mantissa = -1
    return is_complex, exponent, mantissa, _bits(real), not dtypes.issubdtype(real, np.unsignedinteger)


def _bits(dtype) -> int:
    return 1 if dtype == np.bool_ else dtypes.itemsize_bits(dtype)


def _dot_dtype(lhs, rhs, preferred):
    first, second = _rank_of(lhs), _rank_of(rhs)
    if first == second and lhs != rhs:
        raise TypeError(f"lax.dot_general argument type error: {lhs}, {rhs}")
    result = lhs if first >= second else rhs
    if preferred is None or preferred == result:
        return result
    if not dtypes.issubdtype(result, np.floating) and _bits(preferred) < _bits(result):
        raise TypeError(
            "`preferred_element_type` must not be narrower than the original type, got "
            "preferred_element_type of "
            f"{preferred} for result type of {result}."
        )
    return preferred


def _dot_type(lhs, rhs, *, dimension_numbers, precision, preferred_element_type, out_sharding):
    shape = _dot_shape(lhs, rhs, dimension_numbers)
    dtype = _dot_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    return ShapedArray(shape, dtype, lhs.weak_type and rhs.weak_type)


# ---------------------------------------------------------------- rules


def _dot_reference(lhs, rhs, *, dimension_numbers, precision, preferred_element_type, out_sharding):
    (lhs_contract, rhs_contract), (lhs_batch, rhs_batch) = dimension_numbers
    dtype = _dot_dtype(lhs.dtype, rhs.dtype, preferred_element_type)
    narrow = dtypes.issubdtype(dtype, np.floating) and dtype.itemsize < 4
    compute = np.dtype(np.float32) if narrow else dtype
    lhs_free = _free(lhs.ndim, lhs_contract, lhs_batch)
    rhs_free = _free(rhs.ndim, rhs_contract, rhs_batch)
    batch = tuple(lhs.shape[d] for d in lhs_batch)
    rows = tuple(lhs.shape[d] for d in lhs_free)
    columns = tuple(rhs.shape[d] for d in rhs_free)
    k = int(np.prod([lhs.shape[d] for d in lhs_contract], dtype=np.int64))
    m, n, b = (int(np.prod(s, dtype=np.int64)) for s in (rows, columns, batch))
    left = lhs.transpose(*lhs_batch, *lhs_free, *lhs_contract).reshape(b, m, k).astype(compute, copy=False)
    right = rhs.transpose(*rhs_batch, *rhs_contract, *rhs_free).reshape(b, k, n).astype(compute, copy=False)
    with np.errstate(all="ignore"):
        return np.matmul(left, right).reshape(batch + rows + columns).astype(dtype, copy=False)


def _dot_jvp(primals, tangents, **params):
    (x, y), (tx, ty) = primals, tangents
    out = dot_general_p.bind(x, y, **params)
    terms = []
    if type(tx) is not Zero:
        terms.append(dot_general_p.bind(tx, y, **params))
    if type(ty) is not Zero:
        terms.append(dot_general_p.bind(x, ty, **params))
    return out, terms[0] if len(terms) == 1 else add_tangents(*terms)


def _cotangent(ct, x, y, contract, batch, swapped: bool, precision, preferred_element_type):
    """The cotangent of x, where ct is that of the product of x and y, or of y and x if `swapped`.

    The product of ct and y over y's free axes has x's batch axes, x's free axes, and the contracted
    axes in y's order. Over Explicit mesh axes the product is computed in the sharding of x's cotangent.
    """
    (x_contract, y_contract), (x_batch, y_batch) = contract, batch
    x_free = _free(x.aval.ndim, x_contract, x_batch)
    y_free = _free(typeof(y).ndim, y_contract, y_batch)
    first = len(x_batch)
    start = first if swapped else first + len(x_free)
    ct_contract = tuple(range(start, start + len(y_free)))
    numbers = ((ct_contract, y_free), (tuple(range(first)), y_batch))
    order = [*x_batch, *x_free, *(x_contract[i] for i in np.argsort(y_contract))]
    product = dot_general(
        ct, y, numbers, precision=precision, preferred_element_type=preferred_element_type,
        out_sharding=_in_order(x.aval.to_cotangent_aval(), order),
    )  # fmt: skip
    result = transpose(product, np.argsort(order).tolist()) if order else product
    if typeof(result).dtype != x.aval.dtype:
        # for a real operand combined with a complex one: the real part, without the warning of `convert`
        result = registry["convert_element_type"].bind(result, new_dtype=x.aval.dtype, weak_type=x.aval.weak_type)
    return result


def _in_order(aval: Any, order: Sequence[int]) -> Any:
    """The sharding over Explicit mesh axes of an array of type `aval` with its axes in another order; None without one.
    """
    if aval.split is None:
        return None
    sharding = aval.sharding
    parts = sharding.spec.padded(aval.ndim)
    return sharding.update(spec=sharding.spec.update([parts[i] for i in order]))


def _dot_transpose(ct, x, y, *, dimension_numbers, precision, preferred_element_type, out_sharding):
    (xc, yc), (xb, yb) = dimension_numbers
    if is_linear(x):
        return [_cotangent(ct, x, y, (xc, yc), (xb, yb), False, precision, preferred_element_type), None]
    return [None, _cotangent(ct, y, x, (yc, xc), (yb, xb), True, precision, preferred_element_type)]


def _dot_batch(axis, args, dims, *, dimension_numbers, precision, preferred_element_type, out_sharding):
    """Two batched operands get one more batch axis; the batch axis of one batched operand becomes a free axis."""
    (x, y), (xd, yd) = args, dims
    (xc, yc), (xb, yb) = dimension_numbers

    def moved(axes, dim):
        return tuple(a + (a >= dim) for a in axes)

    if xd is not None and yd is not None:
        xb, yb = (xd, *moved(xb, xd)), (yd, *moved(yb, yd))
        xc, yc = moved(xc, xd), moved(yc, yd)
        out_dim = 0
    elif xd is not None:
        out_dim = len(xb) + sum(d < xd for d in _free(typeof(x).ndim - 1, xc, xb))
        xb, xc = moved(xb, xd), moved(xc, xd)
    else:
        out_dim = typeof(x).ndim - len(xc) + sum(d < yd for d in _free(typeof(y).ndim - 1, yc, yb))
        yb, yc = moved(yb, yd), moved(yc, yd)
    out = dot_general(
        x, y, ((xc, yc), (xb, yb)), precision=precision, preferred_element_type=preferred_element_type,
        out_sharding=axis.of_batch(out_sharding, out_dim),
    )  # fmt: skip
    return out, out_dim


def _dot_pretty(eqn, _names):
    params = {k: v for k, v in eqn.params.items() if v is not None and k != "out_sharding"}
    contract, batch = params["dimension_numbers"]
    params["dimension_numbers"] = (tuple(map(list, contract)), tuple(map(list, batch)))
    return sorted(params.items())


def _is_unbatched(params):
    _, (lhs_batch, rhs_batch) = params["dimension_numbers"]
    return not lhs_batch and not rhs_batch


dot_general_p = Primitive(
    "dot_general",
    type_rule=_dot_type,
    reference=_dot_reference,
    lower=Library(),
    jvp=_dot_jvp,
    transpose=_dot_transpose,
    batch=_dot_batch,
    pretty=_dot_pretty,
    sharding=product_rules.dot_general.but(better=dot_over_ranks.around_a_ring),
    sums=sum_types.contracted,
    same_bits=same_bits.dot_general,
    product=_is_unbatched,
)
