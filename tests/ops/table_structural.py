"""One row for each way of using the operations that move elements, multiply matrices or sort."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

RANDOM = np.random.default_rng(0)


def floats(*shape: int, dtype: Any = np.float32) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(dtype)


@dataclass(frozen=True)
class Row:
    """A use of an operation: `fun(lax, *args)`, with the names of the primitives it is there to test."""

    name: str
    primitives: str
    fun: Callable
    args: tuple
    derivatives: bool = True
    # Which operands to vectorize over; all of them together, and each alone.
    batched: bool = True

    def __str__(self) -> str:
        return self.name


def gather_rows(lax):
    return lax.GatherDimensionNumbers(offset_dims=(1,), collapsed_slice_dims=(0,), start_index_map=(0,))


def scatter_rows(lax):
    return lax.ScatterDimensionNumbers(
        update_window_dims=(1,), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,)
    )


X = floats(2, 3)
Y = floats(3, 4)
TALL = floats(4, 3)
INDICES = np.array([[1], [3]], np.int32)
# Repeated, beyond the end, and negative.
WILD = np.array([[1], [1], [9], [-1]], np.int32)
SPECIAL = np.array([[np.nan, 1, -0.0], [-0.0, np.inf, 0.0], [0.0, -np.inf, -1.0], [2.0, 1, 0.0]], np.float32)
MATRIX = (((1,), (0,)), ((), ()))
ONE = np.int32(1)


def _scatters() -> list[Row]:
    rows = []
    updates, wild_updates = floats(2, 3), floats(4, 3)
    for name in ("scatter", "scatter_add", "scatter_sub", "scatter_mul", "scatter_min", "scatter_max"):
        primitive = name.replace("_", "-")

        def constant(lax, x, u, name=name):
            return getattr(lax, name)(x, INDICES, u, scatter_rows(lax), unique_indices=True)

        def shared(lax, x, u, name=name):
            return getattr(lax, name)(x, INDICES, u, scatter_rows(lax))

        def computed(lax, x, i, u, name=name):
            return getattr(lax, name)(x, i, u, scatter_rows(lax))

        def clipped(lax, x, i, u, name=name):
            return getattr(lax, name)(x, i, u, scatter_rows(lax), mode="clip")

        rows += [
            Row(f"{name} unique", primitive, constant, (TALL, updates)),
            Row(f"{name} repeated", primitive, shared, (TALL, updates), derivatives=name != "scatter_mul"),
            Row(f"{name} out of bounds", primitive, computed, (TALL, WILD, wild_updates), derivatives=False),
            Row(f"{name} clipped", primitive, clipped, (TALL, WILD, wild_updates), derivatives=False),
        ]
    return rows


def _gathers() -> list[Row]:
    rows = []
    for mode in (None, "clip", "fill", "promise_in_bounds"):

        def constant(lax, x, mode=mode):
            return lax.gather(x, INDICES, gather_rows(lax), (1, 3), mode=mode)

        def computed(lax, x, i, mode=mode):
            return lax.gather(x, i, gather_rows(lax), (1, 3), mode=mode)

        def window(lax, x, i, mode=mode):
            return lax.gather(x, i, lax.GatherDimensionNumbers((1, 2), (), (0,)), (2, 2), mode=mode)

        rows += [
            Row(f"gather {mode}", "gather", constant, (TALL,)),
            Row(f"gather at computed {mode}", "gather", computed, (TALL, INDICES), derivatives=False),
            Row(f"gather windows {mode}", "gather", window, (TALL, WILD), derivatives=False),
        ]
    return rows


def _cumulatives() -> list[Row]:
    rows = []
    for name in ("cumsum", "cumprod", "cummax", "cummin", "cumlogsumexp"):
        for reverse in (False, True):

            def fun(lax, x, name=name, reverse=reverse):
                return getattr(lax, name)(x, axis=0, reverse=reverse)

            rows.append(Row(f"{name} {reverse}", name, fun, (floats(5, 3),)))
    return rows


def _points(lax):
    return lax.GatherDimensionNumbers((), (0, 1), (0, 1))


ROWS: list[Row] = [
    Row(
        "broadcast_in_dim",
        "broadcast_in_dim",
        lambda lax, x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)),
        (X,),
    ),
    Row(
        "broadcast_in_dim of size 1",
        "broadcast_in_dim",
        lambda lax, x: lax.broadcast_in_dim(x, (4, 2, 3), (1, 2)),
        (X[:, :1],),
    ),
    Row(
        "broadcast_in_dim permuting",
        "broadcast_in_dim",
        lambda lax, x: lax.broadcast_in_dim(x, (4, 3, 2), (2, 1)),
        (X,),
        derivatives=False,  # JAX's cotangent has its axes in the wrong order
    ),
    Row("broadcast", "broadcast_in_dim", lambda lax, x: lax.broadcast(x, (4,)), (X,)),
    Row("expand_dims", "broadcast_in_dim", lambda lax, x: lax.expand_dims(x, (0, -1)), (X,)),
    Row("reshape", "reshape", lambda lax, x: lax.reshape(x, (3, 2)), (X,)),
    Row("reshape permuting", "reshape", lambda lax, x: lax.reshape(x, (3, 2), (1, 0)), (X,)),
    Row("reshape to itself", "reshape", lambda lax, x: lax.reshape(x, (2, 3)), (X,)),
    Row("collapse", "reshape", lambda lax, x: lax.collapse(x, 0, 2), (X,)),
    Row("transpose", "transpose", lambda lax, x: lax.transpose(x, (1, 0)), (X,)),
    Row("transpose 3", "transpose", lambda lax, x: lax.transpose(x, (2, 0, 1)), (floats(2, 3, 4),)),
    Row("squeeze", "squeeze", lambda lax, x: lax.squeeze(x, (0,)), (X[:1],)),
    Row("rev", "rev", lambda lax, x: lax.rev(x, (1,)), (X,)),
    Row("slice", "slice", lambda lax, x: lax.slice(x, (0, 1), (2, 3)), (X,)),
    Row("slice with strides", "slice", lambda lax, x: lax.slice(x, (0, 0), (2, 3), (1, 2)), (X,)),
    Row("slice_in_dim", "slice", lambda lax, x: lax.slice_in_dim(x, -2, None, 1, 1), (X,)),
    Row("index_in_dim", "slice squeeze", lambda lax, x: lax.index_in_dim(x, -1, 0, False), (X,)),
    Row("concatenate", "concatenate", lambda lax, x, y: lax.concatenate([x, y], 0), (X, X)),
    Row("split", "split", lambda lax, x: lax.split(x, (1, 2), 1)[1], (X,)),
    Row("stack", "stack", lambda lax, x, y: lax.stack([x, y], 1), (X, X)),
    Row("unstack", "unstack", lambda lax, x: lax.unstack(x, 1)[1:], (X,)),
    Row("unstack the first axis", "unstack", lambda lax, x: lax.unstack(x), (X,)),
    Row("tile", "tile", lambda lax, x: lax.tile(x, (2, 3)), (X,)),
    Row("tile to nothing", "tile", lambda lax, x: lax.tile(x, (0, 3)), (X,)),
    Row(
        "pad",
        "pad",
        lambda lax, x, y: lax.pad(x, y, [(1, 2, 1), (-1, 0, 0)]),
        (X, np.float32(1)),
    ),
    Row("pad negative", "pad", lambda lax, x: lax.pad(x, np.float32(2), [(1, -2, 1), (2, 0, 3)]), (X,)),
    Row("dynamic_slice", "dynamic_slice", lambda lax, x: lax.dynamic_slice(x, (-1, 2), (1, 2)), (X,)),
    Row(
        "dynamic_slice at computed",
        "dynamic_slice",
        lambda lax, x, i: lax.dynamic_slice(x, (i, i), (1, 2)),
        (X, ONE),
        derivatives=False,
    ),
    Row(
        "dynamic_slice at array",
        "dynamic_slice",
        lambda lax, x: lax.dynamic_slice(x, np.array([1, 1], np.int32), (1, 2)),
        (X,),
    ),
    Row(
        "dynamic_slice_in_dim",
        "dynamic_slice",
        lambda lax, x, i: lax.dynamic_slice_in_dim(x, i, 2, 1),
        (X, ONE),
        derivatives=False,
    ),
    Row(
        "dynamic_index_in_dim",
        "dynamic_slice",
        lambda lax, x, i: lax.dynamic_index_in_dim(x, i, 0, False),
        (X, ONE),
        derivatives=False,
    ),
    Row(
        "dynamic_update_slice",
        "dynamic_update_slice",
        lambda lax, x, u: lax.dynamic_update_slice(x, u, (1, 1)),
        (X, X[:1, :1]),
    ),
    Row(
        "dynamic_update_slice at computed",
        "dynamic_update_slice",
        lambda lax, x, u, i: lax.dynamic_update_slice(x, u, (i, 0)),
        (X, X[:1], ONE),
        derivatives=False,
    ),
    Row(
        "dynamic_update_index_in_dim",
        "dynamic_update_slice",
        lambda lax, x, u, i: lax.dynamic_update_index_in_dim(x, u, i, 0),
        (X, X[0], ONE),
        derivatives=False,
    ),
    Row("dot_general", "dot_general", lambda lax, x, y: lax.dot_general(x, y, MATRIX), (X, Y)),
    Row(
        "dot_general precise",
        "dot_general",
        lambda lax, x, y: lax.dot_general(
            x, y, MATRIX, precision="highest", preferred_element_type="float32"
        ),
        (X, Y),
    ),
    Row(
        "dot_general batched",
        "dot_general",
        lambda lax, x, y: lax.dot_general(x, y, (((1,), (2,)), ((0,), (1,)))),
        (floats(2, 3, 4), floats(5, 2, 3)),
    ),
    Row(
        "dot_general over two axes",
        "dot_general",
        lambda lax, x, y: lax.dot_general(x, y, (((1, 0), (2, 1)), ((), ()))),
        (floats(2, 3, 4), floats(5, 2, 3)),
    ),
    Row("outer", "dot_general", lambda lax, x, y: lax.dot_general(x, y, (((), ()), ((), ()))), (X, Y)),
    Row("dot of vectors", "dot_general", lambda lax, x, y: lax.dot(x, y), (X[0], X[0])),
    Row(
        "batch_matmul",
        "dot_general",
        lambda lax, x, y: lax.batch_matmul(x, y),
        (floats(5, 2, 3), floats(5, 3, 2)),
    ),
    Row(
        "dot of bfloat16",
        "dot_general",
        lambda lax, x, y: lax.dot(x, y),
        (X.astype(ml_dtypes.bfloat16), Y.astype(ml_dtypes.bfloat16)),
        derivatives=False,
    ),
    Row(
        "dot of two types",
        "dot_general",
        lambda lax, x, y: lax.dot(x, y),
        (X.astype(ml_dtypes.bfloat16), Y),
        derivatives=False,
    ),
    Row(
        "dot of int8",
        "dot_general",
        lambda lax, x, y: lax.dot(x, y, preferred_element_type=np.int32),
        (np.full((2, 3), 100, np.int8), np.full((3, 2), 3, np.int8)),
        derivatives=False,
    ),
    Row("iota", "iota", lambda lax, x: lax.add(x, lax.iota("float32", 3)), (X[0],)),
    Row(
        "broadcasted_iota",
        "iota",
        lambda lax, x: lax.add(x, lax.broadcasted_iota("float32", (2, 3), 1)),
        (X,),
    ),
    Row("full", "broadcast_in_dim", lambda lax, x: lax.add(x, lax.full((2, 3), 1.0)), (X,)),
    Row("full_like", "broadcast_in_dim", lambda lax, x: lax.mul(x, lax.full_like(x, 2)), (X,)),
    Row(
        "full_like of another dtype",
        "broadcast_in_dim",
        lambda lax, x: lax.full_like(x, 1, dtype="int32"),
        (X,),
        derivatives=False,
        batched=False,
    ),
    *_gathers(),
    Row(
        "gather points",
        "gather",
        lambda lax, x: lax.gather(x, np.array([[0, 1], [2, 2]], np.int32), _points(lax), (1, 1)),
        (TALL,),
    ),
    *_scatters(),
    Row(
        "scatter_apply",
        "scatter",
        lambda lax, x: lax.scatter_apply(x, WILD, lax.sin, scatter_rows(lax), update_shape=(4, 3)),
        (TALL,),
        derivatives=False,
    ),
    Row("sort", "sort", lambda lax, x: lax.sort(x, dimension=0), (TALL,)),
    Row("sort specials", "sort", lambda lax, x: lax.sort(x, dimension=0), (SPECIAL,), derivatives=False),
    Row("sort two", "sort", lambda lax, x, y: lax.sort((x, y), dimension=0), (TALL, floats(4, 3))),
    Row(
        "sort by two keys",
        "sort",
        lambda lax, x, y: lax.sort((x, y), dimension=1, num_keys=2),
        (np.round(TALL), floats(4, 3)),
        derivatives=False,
    ),
    Row("sort_key_val", "sort", lambda lax, x, y: lax.sort_key_val(x, y), (TALL, floats(4, 3))),
    Row("top_k", "top_k", lambda lax, x: lax.top_k(x, 2)[0], (TALL,)),
    Row("top_k specials", "top_k", lambda lax, x: lax.top_k(x, 3, axis=0)[1], (SPECIAL,), derivatives=False),
    *_cumulatives(),
]


@dataclass(frozen=True)
class Mistake:
    """A call that raises, with JAX, the same class with this in its text."""

    name: str
    call: Callable
    error: type
    text: str

    def __str__(self) -> str:
        return self.name


V = np.ones(3, np.float32)
MISTAKES = [
    Mistake(
        "shape", lambda lax: lax.broadcast_in_dim(V, (4,), (0,)), TypeError, "must either be 1, or be equal"
    ),
    Mistake(
        "dims",
        lambda lax: lax.broadcast_in_dim(V, (4, 3), ()),
        TypeError,
        "must have length equal to operand",
    ),
    Mistake(
        "float shape", lambda lax: lax.full((4.5,), 0), TypeError, "Shapes must be 1D sequences of concrete"
    ),
    Mistake(
        "shapes", lambda lax: lax.broadcast_shapes((2,), (3,)), ValueError, "Incompatible shapes for broad"
    ),
    Mistake(
        "stack", lambda lax: lax.stack([V, V[:2]]), ValueError, "All input arrays must have the same shape"
    ),
    Mistake(
        "permutation", lambda lax: lax.transpose(X, (0,)), TypeError, "isn't a permutation of operand dim"
    ),
    Mistake("squeeze", lambda lax: lax.squeeze(V, (0,)), ValueError, "size not equal to one"),
    Mistake("axis", lambda lax: lax.squeeze(V, (2,)), ValueError, "axis 2 is out of bounds for array of dim"),
    Mistake("expand", lambda lax: lax.expand_dims(V, (0, 0)), ValueError, "repeated axis in lax.expand_dims"),
    Mistake("rev", lambda lax: lax.rev(V, (0, 0)), TypeError, "rev dimensions must be unique"),
    Mistake("slice", lambda lax: lax.slice(V, (0,), (4,)), TypeError, "less than or equal to operand shape"),
    Mistake("index", lambda lax: lax.index_in_dim(V, 3), IndexError, "index 3 is out of bounds for axis 0"),
    Mistake(
        "concatenate", lambda lax: lax.concatenate([X, V], 0), TypeError, "different numbers of dimensions"
    ),
    Mistake("dtypes", lambda lax: lax.concatenate([V, V.astype("i4")], 0), TypeError, "have the same dtypes"),
    Mistake("split", lambda lax: lax.split(V, (1, 1)), ValueError, "must be equal to dimension 0"),
    Mistake("pad", lambda lax: lax.pad(V, 1, [(0, 0, 0)]), TypeError, "must be same dtype"),
    Mistake("padding", lambda lax: lax.pad(V, np.float32(1), [(-4, 0, 0)]), ValueError, "is not at least 0"),
    Mistake("dot", lambda lax: lax.dot(V, V[:2]), ValueError, "dimension_numbers must be specified when not"),
    Mistake(
        "contract", lambda lax: lax.dot_general(X, X, MATRIX), TypeError, "contracting dimensions to have the"
    ),
    Mistake(
        "precision", lambda lax: lax.dot(V, V, precision="no"), ValueError, "Precision argument must be one"
    ),
    Mistake(
        "float start", lambda lax: lax.dynamic_slice(V, (1.0,), (2,)), TypeError, "integers of the same type"
    ),
    Mistake(
        "starts", lambda lax: lax.dynamic_slice(V, (1, 1), (2,)), ValueError, "Length of slice indices must"
    ),
    Mistake(
        "size", lambda lax: lax.dynamic_slice(V, (1,), (5,)), TypeError, "slice_sizes must be less than or"
    ),
    Mistake(
        "update", lambda lax: lax.dynamic_update_slice(V, np.ones(5, "f"), (1,)), TypeError, "must be smaller"
    ),
    Mistake(
        "gather", lambda lax: lax.gather(TALL, INDICES, gather_rows(lax), (2, 3)), TypeError, "with bound 1"
    ),
    Mistake(
        "mode", lambda lax: lax.gather(TALL, INDICES, gather_rows(lax), (1, 3), mode="x"), ValueError, "mode"
    ),
    Mistake(
        "float indices",
        lambda lax: lax.gather(TALL, V[:, None], gather_rows(lax), (1, 3)),
        ValueError,
        "indices must have an integer type",
    ),
    Mistake(
        "scatter",
        lambda lax: lax.scatter(TALL, INDICES, floats(3, 3), scatter_rows(lax)),
        TypeError,
        "must be the same as the bounds",
    ),
    Mistake("sort", lambda lax: lax.sort(()), TypeError, "Sort requires at least one operand"),
    Mistake("top_k", lambda lax: lax.top_k(V, 4), ValueError, "must be no larger than size along axis"),
    Mistake("iota", lambda lax: lax.iota("bool", 3), TypeError, "iota does not accept dtype bool"),
    Mistake("full", lambda lax: lax.full((2,), V), TypeError, "must be called with scalar fill_value"),
    Mistake("cumsum", lambda lax: lax.cumsum(V > 0), TypeError, "cumsum does not accept dtype bool"),
]
