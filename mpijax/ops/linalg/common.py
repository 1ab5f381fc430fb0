"""The constructor of linear algebra primitives, which share types, batching and references.

A primitive states the ranks of its operands without batch axes, the shapes and dtypes of its results, and a NumPy
function for one matrix.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.factors import FactorRule, batched
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.families import INEXACT, check_dtype, check_same_dtypes
from mpijax.transforms.batching import batch_at

NOT_LINEAR = Unsupported("factorizations are not linear; their derivatives use linear operations")

Shape = tuple[int, ...]


def no_derivative(name: str) -> Unsupported:
    return Unsupported(f"Differentiation rule for '{name}' not implemented")


def linalg_primitive(
    name: str,
    ranks: Sequence[int],
    shapes: Callable[..., Sequence[Shape]],
    compute: Callable[..., Sequence[Any]],
    *,
    result_dtypes: Callable[..., Sequence[Any]] | None = None,
    accepts: Sequence[Sequence[type]] | None = None,
    same: bool = True,
    stacks: bool = True,
    multiple_results: bool = False,
    jvp: Callable | None = None,
    transpose: Callable = NOT_LINEAR,
    batch: Callable | None = None,
    lower: Any = None,
    sharding: FactorRule | None = None,
) -> Primitive:
    """A primitive on stacks of matrices.

    Args:
      ranks: for each operand the number of axes of one matrix or vector.
      shapes: `(*shapes, **params) -> shapes of the results` for one matrix; raises ValueError or TypeError.
      compute: `(*arrays, **params) -> arrays` for one matrix, in NumPy.
      result_dtypes: `(*dtypes, **params) -> dtypes of the results`; by default that of the first operand.
      accepts: for each operand the accepted kinds of dtypes; by default floats and complex numbers.
      same: whether the operands must have one dtype.
      stacks: whether operands may have batch axes.
      lower: a lowering record; by default a host call of the reference.
      sharding: the sharding rule; by default matrices are whole, and batch axes may be split.
    """
    kinds = accepts if accepts is not None else [INEXACT] * len(ranks)

    def types(*avals: ShapedArray, **params: Any) -> list[ShapedArray]:
        stack = _stack(name, avals, ranks, stacks)
        found = shapes(*(a.shape[a.ndim - r :] for a, r in zip(avals, ranks, strict=True)), **params)
        for i, (aval, accepted) in enumerate(zip(avals, kinds, strict=True)):
            check_dtype(name, aval.dtype, accepted, f" at position {i}" if len(avals) > 1 else "")
        if same:
            check_same_dtypes(name, avals)
        given = [a.dtype for a in avals]
        results = [given[0]] * len(found) if result_dtypes is None else result_dtypes(*given, **params)
        weak = all(a.weak_type for a in avals)
        return [ShapedArray((*stack, *s), d, weak) for s, d in zip(found, results, strict=True)]

    def reference(*arrays: np.ndarray, **params: Any) -> Any:
        outs = [np.zeros(a.shape, a.dtype) for a in types(*map(_type_of, arrays), **params)]
        with np.errstate(all="ignore"):
            for index in np.ndindex(arrays[0].shape[: arrays[0].ndim - ranks[0]]):
                for out, value in zip(outs, compute(*(x[index] for x in arrays), **params), strict=True):
                    out[index] = value
        return outs if multiple_results else outs[0]

    def batch_all(axis, args, dims, **params):
        """Inserts the new batch axis before the others."""
        outs = primitive.bind(*(batch_at(x, d, 0, axis) for x, d in zip(args, dims, strict=True)), **params)
        return (outs, [0] * len(outs)) if multiple_results else (outs, 0)

    def type_rule(*avals, **params):
        found = types(*avals, **params)
        return found if multiple_results else found[0]

    primitive = Primitive(
        name,
        type_rule=type_rule,
        reference=reference,
        lower=HostCall(reference) if lower is None else lower,
        jvp=no_derivative(name) if jvp is None else jvp,
        transpose=transpose,
        batch=batch_all if batch is None else batch,
        multiple_results=multiple_results,
        sharding=batched(ranks) if sharding is None else sharding,
    )
    return primitive


def _type_of(x: np.ndarray) -> ShapedArray:
    return ShapedArray(x.shape, x.dtype)


def _stack(name: str, avals: Sequence[ShapedArray], ranks: Sequence[int], stacks: bool) -> Shape:
    """The sizes of the batch axes. Raises TypeError unless all operands have the same number of them."""
    for i, (aval, rank) in enumerate(zip(avals, ranks, strict=True)):
        if aval.ndim < rank:
            raise TypeError(f"Input {i} to {name} must have rank at least {rank}, but got shape={aval.shape}")
        if not stacks and aval.ndim != rank:
            raise TypeError(f"Input {i} to {name} must have a rank of exactly {rank}, but got shape={aval.shape}")
    counts = [a.ndim - r for a, r in zip(avals, ranks, strict=True)]
    if len(set(counts)) > 1:
        raise TypeError(
            f"All inputs to {name} must have the same number of batch dimensions, but got {counts} batch dimensions "
            "for the inputs."
        )
    found = [a.shape[:n] for a, n in zip(avals, counts, strict=True)]
    if any(s != found[0] for s in found):
        raise TypeError(f"All inputs to {name} must have the same batch dimensions, but got {found}.")
    return found[0]


def square(name: str) -> Callable[..., list[Shape]]:
    """The shapes rule of an operation on square matrices that returns one."""

    def shapes(shape: Shape, **_params: Any) -> list[Shape]:
        check_square(name, shape)
        return [shape]

    return shapes


def check_square(name: str, shape: Shape) -> None:
    if shape[0] != shape[1]:
        raise ValueError(f"The input to {name} must be a square matrix. Got shape {shape}.")


def real_dtype(dtype: Any) -> np.dtype:
    """The dtype of the parts of a complex dtype; a float dtype unchanged."""
    return np.dtype(dtype).type(0).real.dtype if np.dtype(dtype).kind == "c" else dtype


def is_complex(dtype: Any) -> bool:
    return dtypes.issubdtype(dtype, np.complexfloating)


_LETTERS = {"float32": "s", "float64": "d", "complex64": "c", "complex128": "z"}


def routine(name: str, dtype: Any) -> Callable[..., Any]:
    """SciPy's wrapper of a LAPACK routine; `routine("potrf", float32)` is spotrf.

    A name for real and complex numbers, such as "orgqr|ungqr", gives the routine for the dtype.
    Raises NotImplementedError for dtypes that LAPACK does not support.
    """
    import scipy.linalg.lapack  # deferred: takes 150 ms, and only references need it

    real, _, complex_ = name.partition("|")
    return getattr(scipy.linalg.lapack, letter(dtype, name) + (complex_ if complex_ and is_complex(dtype) else real))


def letter(dtype: Any, name: str) -> str:
    """The first letter of LAPACK's routines for a dtype. Raises NotImplementedError for unsupported dtypes."""
    found = _LETTERS.get(np.dtype(dtype).name)
    if found is None:
        raise NotImplementedError(
            f"Unsupported dtype {np.dtype(dtype).name} in {name}. LAPACK supports float32, float64, complex64 and "
            "complex128. Convert the matrix: x.astype(jnp.float32)."
        )
    return found


def nan_unless(ok: bool, *arrays: np.ndarray) -> Iterator[Any]:
    """The arrays, or NaN in place of each if the computation failed."""
    for x in arrays:
        yield x if ok else np.full(x.shape, complex(np.nan, np.nan) if x.dtype.kind == "c" else np.nan, x.dtype)
