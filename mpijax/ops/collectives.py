"""Collectives over named axes: of a mesh under `shard_map`, of a batch under `vmap`.

Types tell over which mesh axes a value varies. `psum` of a varying value is invariant; where an
invariant value meets a varying one, `pvary` marks the change, moves nothing, and is what `psum` transposes
to. With that pairing, gradients through collectives are those of the global program.
"""

from __future__ import annotations

import numpy as np

from mpijax.core import effects as fx
from mpijax.core import tree
from mpijax.core.lowering import Communication, Structural
from mpijax.core.primitive import Primitive, Unsupported, registry
from mpijax.core.trace import axis_size as named_axis_size
from mpijax.core.trace import set_pvary, state, typeof
from mpijax.transforms.batching import move_dim
from mpijax.transforms.zeros import Zero

__all__ = [
    "all_gather", "axis_index", "axis_size", "pcast", "pmax", "pmean", "pmin", "ppermute", "psum", "pvary",
]  # fmt: skip


def _names(axis_name) -> tuple:
    return tuple(axis_name) if isinstance(axis_name, (tuple, list)) else (axis_name,)


def _check_bound(names) -> None:
    for n in names:
        if not isinstance(n, int):
            named_axis_size(n)


def _no_groups(groups) -> None:
    if groups is not None:
        raise NotImplementedError(
            "axis_index_groups is not supported: give the groups an axis of their own in the mesh, "
            "Mesh(devices.reshape(groups, -1), ('group', 'i')), and communicate over 'i'."
        )


def _effects(key):
    def effects(params):
        names = [n for n in _names(params[key]) if not isinstance(n, int)]
        return frozenset([fx.communication, *(fx.NamedAxisEffect(n) for n in names)]) if names else fx.no_effects

    return effects


# ---------------------------------------------------------------- users' functions


def psum(x, axis_name, *, axis_index_groups=None):
    """Sum of `x` (a pytree) over one or more named axes; every shard gets the sum. Communicates one allreduce a leaf.

    A Python number is multiplied by the axis size. Raises NameError for an axis that is not in scope.
    """
    _no_groups(axis_index_groups)
    names = _names(axis_name)
    _check_bound(names)

    def one(leaf):
        if isinstance(leaf, (bool, int, float, complex)):
            return leaf * named_axis_size(names)
        leaf = _numeric(leaf)
        if state.manual_axes:
            return _over_mesh(psum_p, psum_invariant_p, leaf, names)
        return psum_p.bind(leaf, axes=names, axis_index_groups=None)

    return tree.tree_map(one, x)


def _numeric(x):
    if typeof(x).dtype == np.bool_:
        return registry["convert_element_type"].bind(x, new_dtype=np.dtype(np.int32), weak_type=False, sharding=None)
    return x


def _over_mesh(mapped_p, invariant_p, x, names):
    """Reduce over batch axes with one primitive and over mesh axes with the other."""
    mesh_names = tuple(n for n in names if n in state.manual_axes)
    others = tuple(n for n in names if n not in state.manual_axes)
    if others:
        x = mapped_p.bind(x, axes=others, axis_index_groups=None)
    if mesh_names:
        missing = tuple(n for n in mesh_names if n not in typeof(x).vma)
        if missing:
            x = pvary(x, missing)
        if invariant_p is psum_invariant_p:
            return invariant_p.bind(x, axes=mesh_names)
        return invariant_p.bind(x, axes=mesh_names, axis_index_groups=None)
    return x


def pmean(x, axis_name, *, axis_index_groups=None):
    """Mean of `x` (a pytree) over named axes; communicates as `psum`."""
    total = psum(x, axis_name, axis_index_groups=axis_index_groups)
    count = named_axis_size(_names(axis_name))
    return tree.tree_map(lambda v: v / count, total)


def pmax(x, axis_name, *, axis_index_groups=None):
    """Largest value of `x` (a pytree) over named axes, element by element."""
    return _extremum(pmax_p, x, axis_name, axis_index_groups)


def pmin(x, axis_name, *, axis_index_groups=None):
    """Smallest value of `x` (a pytree) over named axes, element by element."""
    return _extremum(pmin_p, x, axis_name, axis_index_groups)


def _extremum(primitive, x, axis_name, groups):
    _no_groups(groups)
    names = _names(axis_name)
    _check_bound(names)

    def one(leaf):
        if state.manual_axes:
            return _over_mesh(primitive, primitive, leaf, names)
        return primitive.bind(leaf, axes=names, axis_index_groups=None)

    return tree.tree_map(one, x)


def ppermute(x, axis_name, perm):
    """Send `x` (a pytree) along a named axis: `perm` lists pairs (source, destination).

    Shards that nobody sends to get zeros. Raises ValueError where a source or destination repeats.
    """
    names = _names(axis_name)
    _check_bound(names)
    perm = tuple((int(a), int(b)) for a, b in perm)
    size = named_axis_size(names)
    sources, targets = [a for a, _ in perm], [b for _, b in perm]
    if len(set(sources)) != len(perm) or len(set(targets)) != len(perm):
        raise ValueError(f"ppermute sources and destinations must be unique, got {perm}.")
    if any(not 0 <= i < size for i in sources + targets):
        raise ValueError(f"ppermute: perm {perm} names a position outside of axis {axis_name!r} of size {size}.")

    def one(leaf):
        missing = tuple(n for n in names if n in state.manual_axes and n not in typeof(leaf).vma)
        leaf = pvary(leaf, missing) if missing else leaf
        return ppermute_p.bind(leaf, axis_name=names, perm=perm)

    return tree.tree_map(one, x)


def all_gather(x, axis_name, *, axis_index_groups=None, axis=0, tiled=False):
    """The shards' `x` (a pytree) side by side: along a new axis at `axis`, or joined along it with `tiled`."""
    _no_groups(axis_index_groups)
    names = _names(axis_name)
    _check_bound(names)
    size = named_axis_size(names)

    def one(leaf):
        ndim = typeof(leaf).ndim + (not tiled)
        if not -ndim <= axis < ndim:
            raise ValueError(f"all_gather: axis {axis} is out of bounds for a result with {ndim} axes")
        missing = tuple(n for n in names if n in state.manual_axes and n not in typeof(leaf).vma)
        leaf = pvary(leaf, missing) if missing else leaf
        return all_gather_p.bind(
            leaf, all_gather_dimension=axis % ndim, axis_name=names, axis_index_groups=None, axis_size=size, tiled=tiled
        )

    return tree.tree_map(one, x)


def axis_index(axis_name):
    """Position of this shard along a named axis (row-major over several), an int32 scalar."""
    names = _names(axis_name)
    _check_bound(names)
    if len(names) == 1:
        return axis_index_p.bind(axis_name=names[0])
    position = None
    for n in names:
        here = axis_index_p.bind(axis_name=n)
        position = here if position is None else position * named_axis_size(n) + here
    return position


def axis_size(axis_name) -> int:
    """Size of a named axis (the product over several), a Python int."""
    return named_axis_size(axis_name)


def pvary(x, axis_name):
    """`x` (a pytree), typed as varying over mesh axes; moves nothing."""
    names = _names(axis_name)
    if not names:
        return x
    return tree.tree_map(lambda leaf: pvary_p.bind(leaf, axes=names), x)


def pcast(x, axis_name, *, to: str):
    """`x` (a pytree) typed as varying (`to='varying'`) over mesh axes."""
    if to != "varying":
        raise NotImplementedError(f"pcast(..., to={to!r}): only to='varying' is supported; reduce with psum instead.")
    names = _names(axis_name)

    def one(leaf):
        already = [n for n in names if n in typeof(leaf).vma]
        if already:
            raise ValueError(f"pcast to varying: the value varies over {already} already, its type is {typeof(leaf)}")
        return pvary(leaf, names)

    return tree.tree_map(one, x)


# ---------------------------------------------------------------- primitives


def _same_type(x, **_):
    return x


def _reduced_type(x, *, axes, **_):
    positional = [a for a in axes if isinstance(a, int)]
    return x.update(shape=tuple(d for i, d in enumerate(x.shape) if i not in positional))


def _without(key):
    """Varying axes of a result that is the same along the axes communicated over."""

    def vma(avals, params):
        return avals[0].vma - set(_names(params[key]))

    return vma


def _with(key):
    def vma(avals, params):
        mesh_axes = frozenset(n for n in _names(params[key]) if n in state.manual_axes)
        return (avals[0].vma if avals else frozenset()) | mesh_axes

    return vma


def _linear_jvp(primitive_name):
    def jvp(primals, tangents, **params):
        primitive = registry[primitive_name]
        [x], [t] = primals, tangents
        out = primitive.bind(x, **params)
        return out, Zero.of_primal(out) if type(t) is Zero else primitive.bind(t, **params)

    return jvp


def _reduction_batch(primitive_name, reduce_name):
    """Over the batch's own axis the collective is a reduction; otherwise the batch just comes along."""

    def batch(axis, args, dims, *, axes, **params):
        [x], [d] = args, dims
        primitive = registry[primitive_name]
        names = tuple(n for n in axes if n != axis.name or axis.name is None)
        if axis.name is not None and axis.name in axes:
            if d is None:
                if reduce_name == "sum":
                    x = x * axis.size
                return (primitive.bind(x, axes=names, **params) if names else x), None
            out = primitive.bind(x, axes=(*(_shifted(n, d) for n in names), d), **params)
            return out, None
        out = primitive.bind(x, axes=tuple(_shifted(n, d) for n in axes), **params)
        if d is None:
            return out, None
        removed = sum(1 for n in axes if isinstance(n, int) and _shifted(n, d) < d)
        return out, d - removed

    return batch


def _shifted(n, d):
    return n + 1 if isinstance(n, int) and d is not None and n >= d else n


def _psum_transpose(ct, x, *, axes, **params):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    positional = [a for a in axes if isinstance(a, int)]
    named = tuple(a for a in axes if not isinstance(a, int))
    if positional:
        shape = x.aval.shape
        kept = tuple(i for i in range(len(shape)) if i not in positional)
        ct = registry["broadcast_in_dim"].bind(ct, shape=shape, broadcast_dimensions=kept, sharding=None)
    return [psum_p.bind(ct, axes=named, axis_index_groups=None) if named else ct]


psum_p = Primitive(
    "psum",
    type_rule=_reduced_type,
    reference=lambda x, *, axes, **_: x.sum(axis=tuple(a for a in axes if isinstance(a, int))),
    lower=Communication("allreduce_sum"),
    jvp=_linear_jvp("psum"),
    transpose=_psum_transpose,
    batch=_reduction_batch("psum", "sum"),
    effects=_effects("axes"),
    vma=lambda avals, params: avals[0].vma,
)

psum_invariant_p = Primitive(
    "psum_invariant",
    type_rule=_same_type,
    reference=lambda x, *, axes: x,
    lower=Communication("allreduce_sum"),
    jvp=_linear_jvp("psum_invariant"),
    transpose=lambda ct, x, *, axes: [ct if type(ct) is Zero else pvary_p.bind(ct, axes=axes)],
    batch=lambda axis, args, dims, *, axes: (psum_invariant_p.bind(args[0], axes=axes), dims[0]),
    effects=_effects("axes"),
    vma=_without("axes"),
)


class _Pvary(Primitive):
    """Only axes over which the value does not vary yet count: each is summed over once in the transpose."""

    def bind(self, x, *, axes):
        already = typeof(x).vma
        missing = tuple(a for a in axes if a not in already)
        return super().bind(x, axes=missing) if missing else x


pvary_p = _Pvary(
    "pvary",
    type_rule=_same_type,
    reference=lambda x, *, axes: x,
    lower=Structural("pvary"),
    jvp=_linear_jvp("pvary"),
    transpose=lambda ct, x, *, axes: [ct if type(ct) is Zero else psum_invariant_p.bind(ct, axes=axes)],
    batch=lambda axis, args, dims, *, axes: (pvary_p.bind(args[0], axes=axes), dims[0]),
    vma=_with("axes"),
)
set_pvary(pvary)


def _extremum_jvp(name):
    """The tangent of the winner; where several tie, their mean, as for a maximum along an array axis."""

    def jvp(primals, tangents, **params):
        primitive = registry[name]
        [x], [t] = primals, tangents
        out = primitive.bind(x, **params)
        if type(t) is Zero:
            return out, Zero.of_primal(out)
        names = params["axes"]
        wide = pvary(out, tuple(n for n in names if n in state.manual_axes)) if state.manual_axes else out
        wins = registry["eq"].bind(x, wide)
        mask = registry["convert_element_type"].bind(wins, new_dtype=typeof(x).dtype, weak_type=False, sharding=None)
        count = psum(mask, names)
        return out, psum(t * mask, names) / count

    return jvp


def _extremum_primitive(name: str, ufunc) -> Primitive:
    return Primitive(
        name,
        type_rule=_reduced_type,
        reference=lambda x, *, axes, **_: ufunc.reduce(x, axis=tuple(a for a in axes if isinstance(a, int))),
        lower=Communication(f"allreduce_{name[1:]}"),
        jvp=_extremum_jvp(name),
        transpose=Unsupported(f"{name} is not linear; it is differentiated by its jvp rule"),
        batch=_reduction_batch(name, name[1:]),
        effects=_effects("axes"),
        vma=_without("axes"),
    )


pmax_p = _extremum_primitive("pmax", np.maximum)
pmin_p = _extremum_primitive("pmin", np.minimum)


def _ppermute_transpose(ct, x, *, axis_name, perm):
    if type(ct) is Zero:
        return [Zero(x.aval)]
    return [ppermute_p.bind(ct, axis_name=axis_name, perm=tuple((b, a) for a, b in perm))]


def _ppermute_batch(axis, args, dims, *, axis_name, perm):
    [x], [d] = args, dims
    if axis.name is None or axis.name not in axis_name:
        return ppermute_p.bind(x, axis_name=axis_name, perm=perm), d
    if len(axis_name) != 1:
        raise NotImplementedError("ppermute over a batch axis together with other axes: permute over one at a time")
    if d is None:
        from mpijax.transforms.batching import broadcast_dim

        x, d = broadcast_dim(x, axis.size, 0), 0
    x = move_dim(x, d, 0)
    origin = {b: a for a, b in perm}
    pieces = []
    for i in range(axis.size):
        j = origin.get(i)
        starts = (j if j is not None else 0,) + (0,) * (typeof(x).ndim - 1)
        limits = (starts[0] + 1, *typeof(x).shape[1:])
        piece = registry["slice"].bind(x, start_indices=starts, limit_indices=limits, strides=None)
        pieces.append(piece if j is not None else np.zeros(typeof(piece).shape, typeof(x).dtype))
    return registry["concatenate"].bind(*pieces, dimension=0), 0


ppermute_p = Primitive(
    "ppermute",
    type_rule=_same_type,
    reference=lambda x, *, axis_name, perm: x,
    lower=Communication("permute"),
    jvp=_linear_jvp("ppermute"),
    transpose=_ppermute_transpose,
    batch=_ppermute_batch,
    effects=_effects("axis_name"),
    vma=_with("axis_name"),
)


def _all_gather_type(x, *, all_gather_dimension, axis_size, tiled, **_):
    shape = list(x.shape)
    if tiled:
        shape[all_gather_dimension] *= axis_size
    else:
        shape.insert(all_gather_dimension, axis_size)
    return x.update(shape=tuple(shape))


def _all_gather_transpose(ct, x, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups):
    """Every shard's cotangent for my part, summed."""
    if type(ct) is Zero:
        return [Zero(x.aval)]
    total = psum_p.bind(ct, axes=axis_name, axis_index_groups=None)
    here = axis_index(axis_name)
    if not tiled:
        size = 1
    else:
        size = x.aval.shape[all_gather_dimension]
    zero = np.zeros((), np.int32)[()]
    starts = [zero] * typeof(total).ndim
    starts[all_gather_dimension] = here * size if size != 1 else here
    shape = list(typeof(total).shape)
    shape[all_gather_dimension] = size
    part = registry["dynamic_slice"].bind(total, *starts, slice_sizes=tuple(shape))
    if not tiled:
        part = registry["squeeze"].bind(part, dimensions=(all_gather_dimension,))
    return [part]


def _all_gather_batch(axis, args, dims, *, all_gather_dimension, axis_name, axis_size, tiled, axis_index_groups):
    [x], [d] = args, dims
    if axis.name is None or axis.name not in axis_name:
        at = all_gather_dimension
        # The batch axis comes along, before or behind the gathered one.
        shifted = at + (d is not None and d <= at)
        moved = d if d is None else d + (not tiled and shifted <= d)
        out = all_gather_p.bind(
            x,
            all_gather_dimension=shifted,
            axis_name=axis_name,
            axis_index_groups=None,
            axis_size=axis_size,
            tiled=tiled,
        )
        return out, moved
    if len(axis_name) != 1:
        raise NotImplementedError("all_gather over a batch axis together with other axes: gather over one at a time")
    if d is None:
        from mpijax.transforms.batching import broadcast_dim

        x, d = broadcast_dim(x, axis.size, 0), 0
    x = move_dim(x, d, all_gather_dimension)
    if tiled:
        shape = list(typeof(x).shape)
        merged = shape[:all_gather_dimension] + [shape[all_gather_dimension] * shape[all_gather_dimension + 1]]
        merged += shape[all_gather_dimension + 2 :]
        x = registry["reshape"].bind(x, new_sizes=tuple(merged), dimensions=None, sharding=None)
    return x, None


all_gather_p = Primitive(
    "all_gather",
    type_rule=_all_gather_type,
    reference=lambda x, **_: x,
    lower=Communication("allgather"),
    jvp=_linear_jvp("all_gather"),
    transpose=_all_gather_transpose,
    batch=_all_gather_batch,
    effects=_effects("axis_name"),
    vma=_with("axis_name"),
)


def _axis_index_batch(axis, args, dims, *, axis_name):
    out = registry["iota"].bind(dtype=np.dtype(np.int32), shape=(axis.size,), dimension=0, sharding=None)
    return out, 0


def _axis_index_type(*, axis_name):
    from mpijax.core.avals import ShapedArray

    return ShapedArray((), np.int32)


axis_index_p = Primitive(
    "axis_index",
    type_rule=_axis_index_type,
    reference=lambda *, axis_name: np.int32(0),
    lower=Communication("axis_index"),
    jvp=lambda primals, tangents, *, axis_name: (axis_index_p.bind(axis_name=axis_name), None),
    transpose=Unsupported("axis_index has no arguments"),
    batch=_axis_index_batch,
    effects=lambda params: frozenset({fx.NamedAxisEffect(params["axis_name"])}),
    vma=_with("axis_name"),
)
