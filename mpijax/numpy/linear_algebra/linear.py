"""Products of vectors, matrices and tensors, as `dot_general`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from mpijax import lax
from mpijax.core import dtypes
from mpijax.core.rules.sharding_types import axes_of
from mpijax.core.tracing.out_sharding import explicit_sharding, with_out_sharding
from mpijax.core.types.typeof import typeof
from mpijax.numpy.ufuncs.complexes import conj
from mpijax.numpy.util import (
    canonical_axis,
    check_arraylike,
    convert,
    ensure_arraylike,
    is_complex,
    promote_dtypes,
)
from mpijax.transforms.jit import jit
from mpijax.transforms.vmap import vmap

_STATIC = ("precision", "preferred_element_type", "out_sharding")


def result_type(fun_name: str, preferred_element_type: Any, *operands: Any) -> tuple[Any, bool]:
    """(dtype, weak_type) of a product: the requested dtype, else the promoted dtype of the operands."""
    if preferred_element_type is None:
        return dtypes.result_type(*operands, return_weak_type_flag=True)
    return dtypes.check_user_dtype_supported(preferred_element_type, fun_name), False


@jit(static_argnames=_STATIC, inline=True)
def dot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None) -> Any:
    """Sum of products over the last axis of `a` and the second-to-last axis of `b` (the only axis if `b` is a vector).

    Args:
      a: array [..., n], or a scalar.
      b: array [..., n, k] or [n], or a scalar.
      precision: None, "default", "high", "highest", or a pair of these for the two operands.
      preferred_element_type: dtype of the accumulation and of the result.

    Returns:
      Array with the other axes of `a`, then the other axes of `b`; the product if either is a scalar.

    Raises:
      TypeError: the sizes n differ.

    >>> jnp.dot(jnp.array([[1, 2], [3, 4]]), jnp.array([10, 1]))
    Array([12, 34], dtype=int32)
    """
    a, b = ensure_arraylike("dot", a, b)
    dtype, weak_type = result_type("dot", preferred_element_type, a, b)
    if a.ndim == 0 or b.ndim == 0:
        contracted: tuple = ((), ())
    else:
        contracted = ((a.ndim - 1,), (max(b.ndim - 2, 0),))
    out = lax.dot_general(
        a,
        b,
        (contracted, ((), ())),
        precision=precision,
        preferred_element_type=dtype,
        out_sharding=explicit_sharding(out_sharding, "dot"),
    )
    return with_out_sharding(convert(out, dtype, weak_type), out_sharding, "dot")


@jit(static_argnames=_STATIC, inline=True)
def matmul(
    a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None, out_sharding: Any = None
) -> Any:
    """Matrix product, also of stacks of matrices: `a @ b`.

    Args:
      a: array of shape [..., m, n] or [n].
      b: array of shape [..., n, k] or [n]; the leading axes of both broadcast.
      precision, preferred_element_type: as in `dot`.
      out_sharding: the sharding of the result.

    Returns:
      Array of shape [..., m, k], without m or k if an operand is a vector.

    Raises:
      ValueError: an operand is a scalar.
      TypeError: the sizes n differ.

    >>> jnp.matmul(jnp.array([[1, 2], [3, 4]]), jnp.array([[0, 1], [1, 0]]))
    Array([[2, 1],
           [4, 3]], dtype=int32)
    """
    a, b = ensure_arraylike("matmul", a, b)
    for position, x in enumerate((a, b)):
        if x.ndim < 1:
            raise ValueError(f"matmul input operand {position} must have ndim at least 1, but it has ndim {x.ndim}")
    dtype, weak_type = result_type("matmul", preferred_element_type, a, b)
    axes = _matmul_axes(a, b)
    a, b = lax.squeeze(a, axes.a_squeezed), lax.squeeze(b, axes.b_squeezed)
    contracted = ((a.ndim - 1,), (max(b.ndim - 2, 0) if axes.b_is_matrix else b.ndim - 1,))
    out = lax.dot_general(
        a,
        b,
        (contracted, (axes.a_batch, axes.b_batch)),
        precision=precision,
        preferred_element_type=dtype,
        out_sharding=axes.of_product(explicit_sharding(out_sharding, "matmul")),
    )
    out = lax.transpose(out, axes.permutation)
    if axes.restored:
        out = lax.expand_dims(out, axes.restored)
    return with_out_sharding(convert(out, dtype, weak_type), out_sharding, "matmul")


class _matmul_axes:
    """The pairs of axes of a matrix product of stacks.

    A batch axis of size 1 in only one operand is dropped there and stays a free axis of the other, so nothing is
    copied. An axis that a mesh axis splits is not dropped. Axes are named by their position among the broadcast batch
    axes, counted from the front; m and k follow them.

    Attributes:
      a_batch, b_batch: batch axes of the operands after the drop.
      a_squeezed, b_squeezed: axes of size 1 to drop from the operands.
      restored: axes of size 1 in both, to insert at the end.
      permutation: brings the result of dot_general (batch, free in a, free in b) into order.
    """

    def __init__(self, a: Any, b: Any):
        self.b_is_matrix = b.ndim > 1
        count = max(a.ndim, b.ndim, 2) - 2
        a_sizes = (None,) * (count - max(a.ndim - 2, 0)) + a.shape[:-2]
        b_sizes = (None,) * (count - max(b.ndim - 2, 0)) + b.shape[:-2]
        self.a_batch: list[int] = []
        self.b_batch: list[int] = []
        self.a_squeezed: list[int] = []
        self.b_squeezed: list[int] = []
        self.restored: list[int] = []
        shared: list[int] = []
        a_split, b_split = ([()] * (count + 2 - x.ndim) + [*axes_of(typeof(x))] for x in (a, b))
        a_free: list[int] = []
        b_free: list[int] = []

        def drop(squeezed, free):
            squeezed.append(len(shared) + len(free) + len(squeezed))

        for i, (m, n) in enumerate(zip(a_sizes, b_sizes, strict=True)):
            a_is_one, b_is_one = m == 1 and not a_split[i], n == 1 and not b_split[i]
            if m is None:
                b_free.append(i)
            elif n is None:
                a_free.append(i)
            elif a_is_one and b_is_one:
                drop(self.a_squeezed, a_free)
                drop(self.b_squeezed, b_free)
                self.restored.append(i)
            elif a_is_one:
                b_free.append(i)
                drop(self.a_squeezed, a_free)
            elif b_is_one:
                a_free.append(i)
                drop(self.b_squeezed, b_free)
            elif m == n:
                self.a_batch.append(len(shared) + len(a_free))
                self.b_batch.append(len(shared) + len(b_free))
                shared.append(i)
            else:
                raise ValueError(f"Incompatible types for matmul arguments: {typeof(a)} and {typeof(b)}")
        if a.ndim > 1:
            a_free.append(count)
        if b.ndim > 1:
            b_free.append(count + 1)
        order = shared + a_free + b_free
        self.permutation = sorted(range(len(order)), key=order.__getitem__)

    def of_product(self, sharding: Any) -> Any:
        """The sharding of the result of dot_general, given the sharding of the result of matmul."""
        if sharding is None:
            return None
        rank = len(self.permutation) + len(self.restored)
        left = [part for i, part in enumerate(sharding.spec.padded(rank)) if i not in self.restored]
        return sharding.update(spec=sharding.spec.update([left[self.permutation.index(i)] for i in range(len(left))]))


@jit(static_argnames=("precision", "preferred_element_type"), inline=True)
def vdot(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sum of products of all elements, with `a` conjugated. Returns a scalar.

    Raises:
      TypeError: the numbers of elements differ.

    >>> jnp.vdot(jnp.array([1j, 2]), jnp.array([1j, 3]))
    Array(7.+0.j, dtype=complex64)
    """
    a, b = ensure_arraylike("vdot", a, b)
    if is_complex(a.dtype):
        a = conj(a)
    return dot(a.ravel(), b.ravel(), precision=precision, preferred_element_type=preferred_element_type)


def vecdot(x1: Any, x2: Any, /, *, axis: int = -1, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sum of products over one axis, with `x1` conjugated; the other axes broadcast.

    Args:
      x1, x2: arrays of the same size along `axis`.

    Returns:
      Array with the broadcast shape, without `axis`.

    >>> jnp.vecdot(jnp.array([[1, 2], [3, 4]]), jnp.array([10, 1]))
    Array([12, 34], dtype=int32)
    """
    x1, x2 = ensure_arraylike("jnp.vecdot", x1, x2)
    if x1.shape[axis] != x2.shape[axis]:
        raise ValueError(f"axes must match; got shapes {x1.shape} and {x2.shape} with axis={axis!r}")
    product = partial(vdot, precision=precision, preferred_element_type=preferred_element_type)
    return _over_stacks(product, _axis_last(x1, axis), 1, _axis_last(x2, axis), 1)


def _axis_last(x: Any, axis: int) -> Any:
    axis = canonical_axis(axis, x.ndim)
    return lax.transpose(x, [i for i in range(x.ndim) if i != axis] + [axis])


def _over_stacks(fun: Callable, x: Any, x_core: int, y: Any, y_core: int) -> Any:
    """`fun` of the last `x_core` and `y_core` axes, mapped over the leading axes, which broadcast."""
    depth = max(x.ndim - x_core, y.ndim - y_core)
    sizes = [(1,) * (depth - z.ndim + core) + z.shape[: z.ndim - core] for z, core in ((x, x_core), (y, y_core))]
    lax.broadcast_shapes(*sizes)
    x, y = (
        lax.squeeze(z, [i for i in range(z.ndim - core) if z.shape[i] == 1]) for z, core in ((x, x_core), (y, y_core))
    )
    ones = []
    for i, (m, n) in reversed(list(enumerate(zip(*sizes, strict=True)))):
        if m == n == 1:
            ones.append(i)
        else:
            fun = vmap(fun, in_axes=(None if m == 1 else 0, None if n == 1 else 0))
    out = fun(x, y)
    return lax.expand_dims(out, sorted(ones)) if ones else out


def tensordot(
    a: Any,
    b: Any,
    axes: int | Sequence = 2,
    *,
    precision: Any = None,
    preferred_element_type: Any = None,
    out_sharding: Any = None,
) -> Any:
    """Sum of products over pairs of axes.

    Args:
      a, b: arrays.
      axes: n, for the last n axes of `a` and the first n axes of `b`; or a pair of axes; or a pair of lists of axes.
      precision, preferred_element_type: as in `dot`.

    Returns:
      Array with the other axes of `a`, then those of `b`.

    Raises:
      TypeError: the sizes of a pair differ.

    >>> jnp.tensordot(jnp.ones((2, 3, 4)), jnp.ones((4, 5, 2)), axes=([0, 2], [2, 0])).shape
    (3, 5)
    """
    a, b = ensure_arraylike("tensordot", a, b)
    dtype, weak_type = result_type("tensordot", preferred_element_type, a, b)
    contracted = _tensordot_axes(axes, a, b)
    out = lax.dot_general(
        a,
        b,
        (contracted, ((), ())),
        precision=precision,
        preferred_element_type=dtype,
        out_sharding=explicit_sharding(out_sharding, "tensordot"),
    )
    return with_out_sharding(convert(out, dtype, weak_type), out_sharding, "tensordot")


def _tensordot_axes(axes: Any, a: Any, b: Any) -> tuple[tuple[int, ...], tuple[int, ...]]:
    if type(axes) is int:
        if axes > min(a.ndim, b.ndim):
            raise TypeError(f"Number of tensordot axes (axes {axes}) exceeds input ranks ({a.shape} and {b.shape})")
        return tuple(range(a.ndim - axes, a.ndim)), tuple(range(axes))
    if not isinstance(axes, (tuple, list)) or len(axes) != 2:
        raise TypeError("tensordot axes argument must be an int, a pair of ints, or a pair of lists/tuples of ints.")
    of_a, of_b = axes
    if isinstance(of_a, int) and isinstance(of_b, int):
        of_a, of_b = (of_a,), (of_b,)
    elif not (isinstance(of_a, (tuple, list)) and isinstance(of_b, (tuple, list))):
        raise TypeError(f"tensordot requires both axes lists to be either ints, tuples or lists, got {of_a} and {of_b}")
    if len(of_a) != len(of_b):
        raise TypeError(f"tensordot requires axes lists to have equal length, got {of_a} and {of_b}.")
    return tuple(canonical_axis(i, a.ndim) for i in of_a), tuple(canonical_axis(i, b.ndim) for i in of_b)


@jit(static_argnames=("precision", "preferred_element_type"), inline=True)
def inner(a: Any, b: Any, *, precision: Any = None, preferred_element_type: Any = None) -> Any:
    """Sum of products over the last axes of both; the product if either is a scalar.

    Args:
      a, b: arrays of shape [..., n]; the leading axes may differ.

    Returns:
      Array with the leading axes of `a`, then the leading axes of `b`.

    >>> jnp.inner(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 0], [1, 1], [0, 1]]))
    Array([[1, 3, 2],
           [3, 7, 4]], dtype=int32)
    """
    a, b = ensure_arraylike("inner", a, b)
    if a.ndim == 0 or b.ndim == 0:
        if preferred_element_type is not None:
            a, b = a.astype(preferred_element_type), b.astype(preferred_element_type)
        return a * b
    return tensordot(a, b, (-1, -1), precision=precision, preferred_element_type=preferred_element_type)


@jit(inline=True)
def outer(a: Any, b: Any, out: None = None) -> Any:
    """Products of each element of `a` with each element of `b`: an array of shape [a.size, b.size].

    Both are flattened; the dtype is the promoted one.

    >>> jnp.outer(jnp.array([1, 2]), jnp.array([10, 20, 30]))
    Array([[10, 20, 30],
           [20, 40, 60]], dtype=int32)
    """
    if out is not None:
        raise NotImplementedError("The 'out' argument to jnp.outer is not supported.")
    a, b = ensure_arraylike("outer", a, b)
    a, b = promote_dtypes(a, b)
    return a.ravel()[:, None] * b.ravel()[None, :]


@jit
def kron(a: Any, b: Any) -> Any:
    """Kronecker product: blocks `a[i, j] * b`, for any number of axes.

    Returns:
      Array whose size along each axis is the product of the sizes of `a` and `b`; the last axes are aligned.

    >>> jnp.kron(jnp.array([[1, 10]]), jnp.array([[1, 2], [3, 4]]))
    Array([[ 1,  2, 10, 20],
           [ 3,  4, 30, 40]], dtype=int32)
    """
    check_arraylike("kron", a, b)
    a, b = promote_dtypes(a, b)
    ndim = max(a.ndim, b.ndim)
    a, b = lax.broadcast_to_rank(a, ndim), lax.broadcast_to_rank(b, ndim)
    out = lax.mul(lax.expand_dims(a, tuple(range(1, 2 * ndim, 2))), lax.expand_dims(b, tuple(range(0, 2 * ndim, 2))))
    return lax.reshape(out, tuple(m * n for m, n in zip(a.shape, b.shape, strict=True)))


@jit
def matvec(x1: Any, x2: Any, /) -> Any:
    """Matrix times vector over stacks: [..., m, n], [..., n] -> [..., m].

    Raises:
      ValueError: the sizes n differ.

    >>> jnp.matvec(jnp.array([[1, 2], [3, 4]]), jnp.array([[1, 0], [0, 1], [1, 1]]))
    Array([[1, 3],
           [2, 4],
           [3, 7]], dtype=int32)
    """
    x1, x2 = ensure_arraylike("matvec", x1, x2)
    if x1.shape[-1:] != x2.shape[-1:]:
        raise ValueError(f"inconsistent size for core dimension 'm': matvec of shapes {x1.shape} and {x2.shape}")
    return _over_stacks(matmul, x1, 2, x2, 1)


@jit
def vecmat(x1: Any, x2: Any, /) -> Any:
    """Conjugated vector times matrix over stacks: [..., n], [..., n, m] -> [..., m].

    Raises:
      ValueError: the sizes n differ.

    >>> jnp.vecmat(jnp.array([1, 10]), jnp.array([[1, 2], [3, 4]]))
    Array([31, 42], dtype=int32)
    """
    x1, x2 = ensure_arraylike("vecmat", x1, x2)
    if x1.shape[-1:] != x2.shape[-2:-1]:
        raise ValueError(f"inconsistent size for core dimension 'n': vecmat of shapes {x1.shape} and {x2.shape}")
    return _over_stacks(matmul, conj(x1), 1, x2, 2)
