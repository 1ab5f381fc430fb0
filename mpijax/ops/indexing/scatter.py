"""Defines scatter: writes updates to windows at computed positions, or combines them with existing elements."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax.core import dtypes
from mpijax.core.programs.jaxpr import Jaxpr
from mpijax.core.rules import shape_rules, shape_types
from mpijax.core.rules.lowering import HostCall, Structural, Window, Writes
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.dimensions import is_longer
from mpijax.core.tracing.jaxpr_trace import trace_to_jaxpr
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.ops import same_bits
from mpijax.ops.elementwise.binary import add_p, max_p, min_p, mul_p, sub_p
from mpijax.ops.families import check_same_dtypes
from mpijax.ops.indexing import by_owner, rows_to_owner
from mpijax.ops.indexing.gather import (
    GatherDimensionNumbers,
    GatherScatterMode,
    check_axes,
    check_batching,
    check_disjoint,
    check_index_map,
    gather,
)
from mpijax.ops.indexing.references import apply_reference, only_window, scatter_reference, window_sizes
from mpijax.ops.rules import full_like, is_linear
from mpijax.ops.shapes.moves import canonical_shape, shape_of, shifted
from mpijax.transforms import key_reuse
from mpijax.transforms.batching import batch_at, move_dim
from mpijax.transforms.zeros import Zero, add_tangents, instantiate


class ScatterDimensionNumbers(NamedTuple):
    """The roles of the axes of a scatter; the mirror image of `GatherDimensionNumbers`.

    Attributes:
      update_window_dims: axes of the updates that belong to the window, ascending.
      inserted_window_dims: axes of the operand whose window has size 1 and no axis in the updates, ascending.
      scatter_dims_to_operand_dims: the operand axis of each component of an index.
      operand_batching_dims: axes of the operand that are batched with axes of the indices, ascending.
      scatter_indices_batching_dims: those axes of the indices.

    >>> points = lax.ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> lax.scatter(jnp.zeros(4), jnp.array([[3], [1]]), jnp.array([5.0, 6.0]), points)
    Array([0., 6., 0., 5.], dtype=float32)
    """

    update_window_dims: Sequence[int]
    inserted_window_dims: Sequence[int]
    scatter_dims_to_operand_dims: Sequence[int]
    operand_batching_dims: Sequence[int] = ()
    scatter_indices_batching_dims: Sequence[int] = ()


# ---------------------------------------------------------------- wrappers


@functools.cache
def _combiner(name: str, dtype, transposed: bool = False) -> Jaxpr:
    """The Jaxpr that combines an update with an element.

    Transposed scatters have a separate Jaxpr: Jaxprs that several equations share are printed separately.
    """
    aval = ShapedArray((), dtype)
    return trace_to_jaxpr(lambda x, y: [registry[name].bind(x, y)], [aval, aval])[0]


def _scatter(primitive: Primitive, operand, indices, updates, numbers, combiner, flags) -> Any:
    return primitive.bind(
        operand,
        indices,
        updates,
        dimension_numbers=numbers,
        indices_are_sorted=flags["indices_are_sorted"],
        unique_indices=flags["unique_indices"],
        mode=GatherScatterMode.from_any(flags["mode"]),
        update_jaxpr=combiner,
        update_consts=(),
    )


def scatter(
    operand: Any,
    scatter_indices: Any,
    updates: Any,
    dimension_numbers: ScatterDimensionNumbers,
    *,
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Any:
    """`operand` with the windows at `scatter_indices` replaced by `updates`. An element keeps its last update.

    Args:
      scatter_indices: integers of shape `(..., number of components)`.
      mode: for windows outside the operand; by default their updates are dropped.

    >>> points = lax.ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> lax.scatter(jnp.zeros(4), jnp.array([[3], [1]]), jnp.array([5.0, 6.0]), points)
    Array([0., 6., 0., 5.], dtype=float32)
    """
    flags = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
    return _scatter(scatter_p, operand, scatter_indices, updates, dimension_numbers, None, flags)


def _combining(name: str, does: str, shown: str) -> Callable:
    def wrapper(
        operand: Any,
        scatter_indices: Any,
        updates: Any,
        dimension_numbers: ScatterDimensionNumbers,
        *,
        indices_are_sorted: bool = False,
        unique_indices: bool = False,
        mode: str | GatherScatterMode | None = None,
    ) -> Any:
        flags = {"indices_are_sorted": indices_are_sorted, "unique_indices": unique_indices, "mode": mode}
        combiner = _combiner(name, typeof(operand).dtype)
        return _scatter(
            _primitives[name], operand, scatter_indices, updates, dimension_numbers, combiner, flags
        )

    wrapper.__name__ = wrapper.__qualname__ = f"scatter_{name}"
    wrapper.__doc__ = f"""Like `scatter`, but {does}. If several updates have the same index, all of them apply.

    >>> points = lax.ScatterDimensionNumbers((), inserted_window_dims=(0,), scatter_dims_to_operand_dims=(0,))
    >>> updates = jnp.array([5.0, -6.0])
    >>> lax.scatter_{name}(jnp.array([1.0, 2.0, 3.0]), jnp.array([[2], [0]]), updates, points)
    Array({shown}, dtype=float32)
    """
    return wrapper


scatter_add = _combining("add", "updates are added to the elements", "[-5.,  2.,  8.]")
scatter_sub = _combining("sub", "updates are subtracted from the elements", "[ 7.,  2., -2.]")
scatter_mul = _combining("mul", "elements are multiplied by the updates", "[-6.,  2., 15.]")
scatter_min = _combining("min", "elements become the minimum of themselves and the updates", "[-6.,  2.,  3.]")
scatter_max = _combining("max", "elements become the maximum of themselves and the updates", "[1., 2., 5.]")


def transposed_gather(
    ct: Any, indices: Any, shape: tuple[int, ...], dn: GatherDimensionNumbers, **flags
) -> Any:
    """The cotangent of a gather's operand: adds the cotangents at the positions that were read."""
    numbers = ScatterDimensionNumbers(
        dn.offset_dims,
        dn.collapsed_slice_dims,
        dn.start_index_map,
        dn.operand_batching_dims,
        dn.start_indices_batching_dims,
    )
    zeros = full_like(ct, 0, shape)
    combiner = _combiner("add", typeof(ct).dtype, transposed=True)
    return _scatter(scatter_add_p, zeros, indices, ct, numbers, combiner, flags)


def scatter_apply(
    operand: Any,
    scatter_indices: Any,
    func: Callable[[Any], Any],
    dimension_numbers: ScatterDimensionNumbers,
    *,
    update_shape: Sequence[int] = (),
    indices_are_sorted: bool = False,
    unique_indices: bool = False,
    mode: str | GatherScatterMode | None = None,
) -> Any:
    """`operand` with `func`, a function of a scalar, applied to an element once for each time it is indexed.

    >>> points = lax.ScatterDimensionNumbers((), (0,), (0,))
    >>> lax.scatter_apply(jnp.array([1.0, 2.0, 3.0]), jnp.array([[2], [0]]), lambda x: -x, points, update_shape=(2,))
    Array([-1.,  2., -3.], dtype=float32)
    """
    aval = typeof(operand)
    unused = full_like(operand, 0, canonical_shape(update_shape))
    scalar = ShapedArray((), aval.dtype)
    jaxpr, consts = trace_to_jaxpr(lambda x, _: [func(x)], [scalar, scalar])
    return scatter_apply_p.bind(
        operand,
        scatter_indices,
        unused,
        dimension_numbers=dimension_numbers,
        indices_are_sorted=indices_are_sorted,
        unique_indices=unique_indices,
        mode=GatherScatterMode.from_any(mode),
        update_jaxpr=jaxpr,
        update_consts=tuple(consts),
    )


# ---------------------------------------------------------------- types


def _scatter_type(operand, indices, updates, *, dimension_numbers, **_flags):
    dn = dimension_numbers
    if not dtypes.issubdtype(indices.dtype, np.integer):
        raise ValueError("indices must have an integer type")
    check_same_dtypes("scatter", (operand, updates))
    rank = indices.ndim - 1 + len(dn.update_window_dims)
    if indices.ndim and updates.ndim != rank:
        raise TypeError(f"Updates tensor must be of rank {rank}; got {updates.ndim}.")
    check_axes("scatter", "update_window_dims", dn.update_window_dims, updates.ndim)
    check_axes("scatter", "inserted_window_dims", dn.inserted_window_dims, operand.ndim)
    check_axes("scatter", "operand_batching_dims", dn.operand_batching_dims, operand.ndim)
    for name in ("inserted_window_dims", "scatter_dims_to_operand_dims"):
        check_disjoint("scatter", name, getattr(dn, name), "operand_batching_dims", dn.operand_batching_dims)
    check_batching(
        "scatter",
        "scatter_indices_batching_dims",
        operand,
        indices,
        dn.operand_batching_dims,
        dn.scatter_indices_batching_dims,
    )
    window = len(dn.update_window_dims) + len(dn.inserted_window_dims) + len(dn.operand_batching_dims)
    if operand.ndim != window:
        raise TypeError(
            f"Scatter op has window of size {window}; doesn't match operand of rank {operand.ndim}."
        )
    check_index_map(
        "scatter", "scatter_dims_to_operand_dims", dn.scatter_dims_to_operand_dims, operand, indices
    )
    _check_bounds(operand, indices, updates, dn)
    return operand


def _check_bounds(operand, indices, updates, dn) -> None:
    removed = (*dn.inserted_window_dims, *dn.operand_batching_dims)
    bounds = [d for i, d in enumerate(operand.shape) if i not in removed]
    for bound, d in zip(bounds, dn.update_window_dims, strict=True):
        if updates.shape[d] > bound:
            raise TypeError(
                "Bounds of the window dimensions of updates must not exceed the bounds of the corresponding "
                "dimensions of "
                f"operand. For dimension {d}, updates bound is {updates.shape[d]}, operand bound is {bound}."
            )
    scattered = [d for d in range(updates.ndim) if d not in dn.update_window_dims]
    for d, size in zip(scattered, indices.shape[:-1], strict=True):
        if updates.shape[d] != size:
            raise TypeError(
                "Bounds of the scatter dimensions of updates must be the same as the bounds of the "
                "corresponding "
                f"dimensions of scatter indices. For scatter dimension {d}, updates bound is "
                f"{updates.shape[d]}, "
                f"indices bound is {size}."
            )


def _inverse(dn: ScatterDimensionNumbers) -> GatherDimensionNumbers:
    """The gather that reads the elements that the scatter writes."""
    return GatherDimensionNumbers(
        tuple(dn.update_window_dims),
        tuple(dn.inserted_window_dims),
        tuple(dn.scatter_dims_to_operand_dims),
        tuple(dn.operand_batching_dims),
        tuple(dn.scatter_indices_batching_dims),
    )


# ---------------------------------------------------------------- batching


def _batch_rule(get_primitive: Callable[[], Primitive]) -> Callable:
    """As for gather: unless indices are batched, the batch axis becomes a window axis."""

    def batch(axis, args, dims, *, dimension_numbers, **params):
        operand, indices, updates = args
        dn = dimension_numbers
        operand = batch_at(operand, dims[0], 0, axis, by_numpy=True)
        updates = batch_at(updates, dims[2], 0, axis, by_numpy=True)
        inserted, mapped = shifted(dn.inserted_window_dims), shifted(dn.scatter_dims_to_operand_dims)
        window, batching = shifted(dn.update_window_dims), shifted(dn.operand_batching_dims)
        if dims[1] is None:
            numbers = ScatterDimensionNumbers(
                (0, *window), inserted, mapped, batching, dn.scatter_indices_batching_dims
            )
        else:
            indices = move_dim(indices, dims[1], 0)
            along = (0, *shifted(dn.scatter_indices_batching_dims))
            numbers = ScatterDimensionNumbers(window, inserted, mapped, (0, *batching), along)
        return get_primitive().bind(operand, indices, updates, dimension_numbers=numbers, **params), 0

    return batch


# ---------------------------------------------------------------- derivatives


def _update_cotangent(ct, indices, updates, dn, mode):
    shape = updates.aval.shape
    sizes = window_sizes(typeof(ct).ndim, shape, dn)
    return gather(ct, indices, _inverse(dn), sizes, mode=mode, fill_value=0)


def _sum_jvp(name: str) -> Callable:
    def jvp(primals, tangents, **params):
        operand, indices, updates = primals
        primitive = _primitives[name]
        out = primitive.bind(operand, indices, updates, **params)
        return out, primitive.bind(instantiate(tangents[0]), indices, instantiate(tangents[2]), **params)

    return jvp


def _sum_transpose(negate: bool) -> Callable:
    def transpose(ct, operand, indices, updates, *, dimension_numbers, mode, **_flags):
        ct_updates = None
        if is_linear(updates):
            ct_updates = _update_cotangent(ct, indices, updates, dimension_numbers, mode)
            if negate:
                ct_updates = registry["neg"].bind(ct_updates)
        return [ct if is_linear(operand) else None, None, ct_updates]

    return transpose


_MUL_NEEDS_UNIQUE = "scatter_mul gradients are only implemented if `unique_indices=True`"


def _mul_jvp(primals, tangents, **params) -> tuple[Any, Any]:
    operand, indices, updates = primals
    t_operand, _, t_updates = tangents
    primitive = _primitives["mul"]
    out = primitive.bind(operand, indices, updates, **params)
    total: Any = Zero.of_primal(out)
    if type(t_operand) is not Zero:
        total = primitive.bind(t_operand, indices, updates, **params)
    if type(t_updates) is not Zero:
        if not params["unique_indices"]:
            raise NotImplementedError(_MUL_NEEDS_UNIQUE)
        added = _with(scatter_add, full_like(operand, 0), indices, t_updates, params)
        total = add_tangents(total, registry["mul"].bind(operand, added))
    return out, total


def _mul_transpose(ct, operand, indices, updates, *, dimension_numbers, mode, unique_indices, **flags):
    params = {"dimension_numbers": dimension_numbers, "mode": mode, "unique_indices": unique_indices, **flags}
    ct_operand = ct_updates = None
    if is_linear(operand):
        params["update_jaxpr"] = _combiner("mul", typeof(ct).dtype, transposed=True)
        ct_operand = _primitives["mul"].bind(ct, indices, updates, **params)
    if is_linear(updates):
        if not unique_indices:
            raise NotImplementedError(_MUL_NEEDS_UNIQUE)
        product = registry["mul"].bind(ct, operand)
        ct_updates = _update_cotangent(product, indices, updates, dimension_numbers, mode)
    return [ct_operand, None, ct_updates]


def _with(fun, operand, indices, updates, params) -> Any:
    """Call a wrapper with the flags of an equation."""
    return fun(
        operand,
        indices,
        updates,
        params["dimension_numbers"],
        indices_are_sorted=params["indices_are_sorted"],
        unique_indices=params["unique_indices"],
        mode=params["mode"],
    )


def _extremal_jvp(name: str) -> Callable:
    """All elements and updates with the extreme value get an equal share of the derivative."""

    def jvp(primals, tangents, **params):
        operand, indices, updates = primals
        dn = params["dimension_numbers"]
        op = {k: registry[k].bind for k in ("eq", "select_n", "add", "div", "mul")}
        out = _primitives[name].bind(operand, indices, updates, **params)
        t_operand, t_updates = instantiate(tangents[0]), instantiate(tangents[2])
        inverse, sizes = _inverse(dn), window_sizes(typeof(operand).ndim, shape_of(updates), dn)
        one = typeof(operand).dtype.type(1)

        def read(x):
            return gather(x, indices, inverse, sizes)

        before, after = read(operand), read(out)
        wins = op["eq"](updates, after)
        kept = op["eq"](before, after)
        zeros, ones, nothing = full_like(operand, 0), full_like(updates, 1), full_like(updates, 0)
        winners = read(scatter_add(zeros, indices, op["select_n"](wins, nothing, ones), dn))
        mentions = read(scatter_add(full_like(operand, 0), indices, full_like(updates, 1), dn))
        shared = op["div"](one, op["add"](winners, one))
        share = op["select_n"](kept, op["div"](one, winners), shared)
        update_share = op["select_n"](wins, full_like(updates, 0), share)
        shared = op["div"](one, op["add"](winners, one))
        operand_share = op["select_n"](kept, full_like(winners, 0), shared)
        change = op["div"](op["add"](-one, operand_share), mentions)
        total = op["add"](op["mul"](read(t_operand), change), op["mul"](t_updates, update_share))
        return out, _with(scatter_add, t_operand, indices, total, params)

    return jvp


def _set_jvp(primals, tangents, **params):
    operand, indices, updates = primals
    t_operand, t_updates = instantiate(tangents[0]), instantiate(tangents[2])
    if params["unique_indices"]:
        out = scatter_p.bind(operand, indices, updates, **params)
        return out, scatter_p.bind(t_operand, indices, t_updates, **params)
    # Values and tangents must choose the same one of several updates of an element. So number the updates
    # from 1, scatter the numbers, keep the winners, and add them, which is linear.
    dn = params["dimension_numbers"]
    ids_shape = [1 if d in dn.update_window_dims else n for d, n in enumerate(shape_of(updates))]
    count = math.prod(ids_shape)
    kind = np.dtype(np.uint64 if is_longer(count, np.iinfo(np.uint32).max) else np.uint32)
    numbers = registry["iota"].bind(dtype=kind, shape=(count,), dimension=0, sharding=None)
    numbers = registry["reshape"].bind(numbers, new_sizes=tuple(ids_shape), dimensions=None, sharding=None)
    ids = registry["add"].bind(numbers, full_like(kind.type(0), 1, shape_of(updates)))
    won = _with(scatter, full_like(kind.type(0), 0, shape_of(operand)), indices, ids, params)
    sizes = window_sizes(typeof(operand).ndim, shape_of(updates), dn)
    won_here = gather(won, indices, _inverse(dn), sizes)

    def masked(x, y):
        untouched = registry["eq"].bind(won, full_like(won, 0))
        x = registry["select_n"].bind(untouched, full_like(x, 0), x)
        winner = registry["eq"].bind(ids, won_here)
        return x, registry["select_n"].bind(winner, full_like(y, 0), y)

    value, tangent = masked(operand, updates), masked(t_operand, t_updates)
    out = _with(scatter_add, value[0], indices, value[1], params)
    return out, _with(scatter_add, tangent[0], indices, tangent[1], params)


def _set_transpose(ct, operand, indices, updates, **params):
    if not params["unique_indices"]:
        raise NotImplementedError("scatter transpose is only implemented where unique_indices=True")
    ct_operand = ct_updates = None
    if is_linear(operand):
        shape = (updates.aval if is_linear(updates) else typeof(updates)).shape
        ct_operand = _with(scatter, ct, indices, full_like(ct, 0, shape), params)
    if is_linear(updates):
        ct_updates = _update_cotangent(ct, indices, updates, params["dimension_numbers"], params["mode"])
    return [ct_operand, None, ct_updates]


# ---------------------------------------------------------------- primitives

_primitives: dict[str, Primitive] = {}


def _bounds(x, indices, updates, *, dimension_numbers, **_):
    n, shape, window = dimension_numbers, shape_of(x), iter(dimension_numbers.update_window_dims)
    single = {*n.inserted_window_dims, *n.operand_batching_dims}
    sizes = [1 if d in single else shape_of(updates)[next(window)] for d in range(len(shape))]
    axes = n.scatter_dims_to_operand_dims
    return indices, np.array([shape[a] - sizes[a] for a in axes]), axes


def _window(params: dict[str, Any], shapes: Sequence[tuple[int, ...]], known: Callable) -> Window | None:
    shape, indices, new = shapes
    dn = params["dimension_numbers"]
    sizes = window_sizes(len(shape), new, dn)
    if 0 in new or 0 in shape or any(n > full for n, full in zip(sizes, shape, strict=True)):
        return None
    clips = params["mode"] is GatherScatterMode.CLIP
    return only_window(known, indices, dn.scatter_dims_to_operand_dims, shape, sizes, clips, new=2)


def _define(name: str, combine: Primitive, jvp: Callable, transpose: Callable) -> Primitive:
    primitive = _primitives[name] = Primitive(
        f"scatter-{name}",
        type_rule=_scatter_type,
        reference=scatter_reference(name),
        lower=Structural(writes=Writes.SCATTER, window=_window, combine=combine),
        jvp=jvp,
        transpose=transpose,
        batch=_batch_rule(lambda: primitive),
        sharding=shape_rules.scatter.but(better=by_owner.scatter(lambda: primitive, name, rows_to_owner.plan)),
        sharding_type=shape_types.scatter,
        bounds=_bounds,
    )
    return primitive


_NOT_LINEAR = Unsupported("minimum and maximum are not linear, so they have no transpose")

scatter_add_p = _define("add", add_p, _sum_jvp("add"), _sum_transpose(False))
scatter_sub_p = _define("sub", sub_p, _sum_jvp("sub"), _sum_transpose(True))


def _same_bits(name: str) -> Callable:
    """Sums updates on separate grids for each position, then adds the operand."""

    def rule(x: Any, indices: Any, updates: Any, **params: Any) -> Any:
        if not same_bits.adds_floats(x):
            return None

        def total(v: Any) -> Any:
            return scatter_add_p.bind(full_like(v, 0, shape_of(x)), indices, v, **params)

        def largest(v: Any) -> tuple[Any, Any]:
            found = _primitives["max"].bind(full_like(v, 0, shape_of(x)), indices, v, **params)
            sizes = window_sizes(len(shape_of(x)), shape_of(v), params["dimension_numbers"])
            numbers, mode = _inverse(params["dimension_numbers"]), params["mode"]
            return gather(found, indices, numbers, sizes, mode=mode, fill_value=0), found

        window = params["dimension_numbers"].update_window_dims
        count = math.prod(n for d, n in enumerate(shape_of(updates)) if d not in window)
        return registry[name].bind(x, same_bits.of_sum(updates, total, largest, count))

    return rule


scatter_add_p.same_bits, scatter_sub_p.same_bits = _same_bits("add"), _same_bits("sub")
scatter_mul_p = _define("mul", mul_p, _mul_jvp, _mul_transpose)
scatter_min_p = _define("min", min_p, _extremal_jvp("min"), _NOT_LINEAR)
scatter_max_p = _define("max", max_p, _extremal_jvp("max"), _NOT_LINEAR)

scatter_p: Primitive = Primitive(
    "scatter",
    type_rule=_scatter_type,
    reference=scatter_reference(None),
    lower=Structural(writes=Writes.SCATTER, window=_window),
    jvp=_set_jvp,
    transpose=_set_transpose,
    batch=_batch_rule(lambda: scatter_p),
    sharding=shape_rules.scatter.but(better=by_owner.scatter(lambda: scatter_p, None, rows_to_owner.plan)),
    sharding_type=shape_types.scatter,
    bounds=_bounds,
    keys=key_reuse.Signature({2: True}, forwards={0: 0}),
)

_NO_APPLY_DERIVATIVE = Unsupported("scatter_apply JVP not implemented")

# Prints as `scatter`, which JAX uses here; a separate primitive because it computes.
scatter_apply_p: Primitive = Primitive(
    "scatter",
    key="scatter_apply",
    type_rule=_scatter_type,
    reference=apply_reference,
    lower=HostCall(apply_reference),
    jvp=_NO_APPLY_DERIVATIVE,
    transpose=_NO_APPLY_DERIVATIVE,
    batch=_batch_rule(lambda: scatter_apply_p),
    bounds=_bounds,
    keys=key_reuse.Signature({2: True}, forwards={0: 0}),
)
