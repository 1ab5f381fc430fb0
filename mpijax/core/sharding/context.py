"""The mesh in context, and conversions between types and shardings over it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from contextlib import nullcontext
from dataclasses import replace
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

from mpijax.core.base import config
from mpijax.core.base.state import state
from mpijax.core.sharding.abstract_mesh import AbstractMesh, AxisType
from mpijax.core.sharding.mesh import Mesh, current_mesh
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.sharding.split import Split, entry, normal

if TYPE_CHECKING:
    from mpijax.core.types.avals import ShapedArray


@cache
def unsplit(mesh: AbstractMesh, ndim: int) -> NamedSharding:
    """The replicated sharding over a mesh for an array of `ndim` axes."""
    return NamedSharding(mesh, PartitionSpec(*[None] * ndim))


@cache
def sharding_of(split: Split) -> NamedSharding:
    """The NamedSharding for the split in the type of a value."""
    spec = PartitionSpec(*map(entry, split.axes), unreduced=split.unreduced, reduced=split.reduced)
    return NamedSharding(split.mesh, spec)


def in_types(names: Iterable, mesh: Any) -> frozenset:
    """Those of the mesh axes that types contain: with `jax_remove_size_one_mesh_axis_from_type`, none of size one."""
    if not config.values.jax_remove_size_one_mesh_axis_from_type:
        return frozenset(names)
    return frozenset(n for n in names if mesh.shape[n] > 1)


def of_sharding(sharding: Any, ndim: int) -> Split | None:
    """The split in the type of a value with this sharding: the array axes that Explicit mesh axes split."""
    mesh = getattr(sharding, "mesh", None)
    if mesh is None or not mesh.is_explicit:
        return None
    mesh = mesh.abstract_mesh
    explicit = in_types(mesh.explicit_axes, mesh)
    spec = sharding.spec
    axes = tuple(tuple(a for a in names if a in explicit) for names in spec.split(ndim))
    return normal(Split(mesh, axes, spec.unreduced & explicit, spec.reduced & explicit))


def type_spec(sharding: Any, ndim: int) -> PartitionSpec:
    """The spec in the type of a value with this sharding, with an entry for each of `ndim` array axes."""
    split = of_sharding(sharding, ndim)
    return PartitionSpec(*[None] * ndim) if split is None else sharding_of(split).spec


@lru_cache(maxsize=256)
def in_body(mesh: AbstractMesh, manual: frozenset) -> AbstractMesh:
    """`mesh` in the body of `shard_map`s over the axes `manual`."""
    return mesh.update_axis_types(dict.fromkeys(manual, AxisType.Manual))


def get_abstract_mesh() -> AbstractMesh:
    """The mesh of the enclosing `shard_map`, or else of `set_mesh`, without its devices; else an empty mesh.

    In the body of a `shard_map`, the axes it maps have type Manual. `with mesh:` does not change the result, as in JAX.

    >>> with mpijax.set_mesh(mpijax.make_mesh((1,), ("x",))):
    ...     mpijax.sharding.get_abstract_mesh().axis_names
    ('x',)
    """
    chosen = config.abstract_mesh.value
    if chosen is not None and chosen[1] is state.body:
        return chosen[0]
    if state.body is not None:
        mesh, manual = state.body
        return in_body(mesh.abstract_mesh, manual)
    mesh = config.current_mesh.value
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


class use_abstract_mesh:
    """Inside, `get_abstract_mesh` returns another mesh, usually the same mesh with other axis types.

    A `shard_map` entered inside sets the mesh of its body again.

    Raises:
      ValueError: if `mesh` is not an AbstractMesh; on entry, if its size differs from that of the present mesh.

    >>> mesh = mpijax.sharding.AbstractMesh((1,), ("x",))
    >>> with mpijax.sharding.use_abstract_mesh(mesh):
    ...     mpijax.sharding.get_abstract_mesh() == mesh
    True
    """

    __slots__ = ("mesh", "_entered")

    def __init__(self, mesh: AbstractMesh):
        if not isinstance(mesh, AbstractMesh):
            raise ValueError(f"Expected mesh of type `jax.sharding.AbstractMesh`. Got type: {type(mesh)}")
        self.mesh = mesh
        self._entered: list[Any] = []

    def __enter__(self) -> AbstractMesh:
        present = get_abstract_mesh()
        if not present.empty and not self.mesh.empty and present.size != self.mesh.size:
            raise ValueError(
                f"use_abstract_mesh cannot change the size of the mesh. Got new mesh: {self.mesh} with "
                f"size={self.mesh.size} and prev mesh: {present} with size={present.size}"
            )
        scope = config.abstract_mesh((self.mesh, state.body))
        scope.__enter__()
        self._entered.append(scope)
        return self.mesh

    def __exit__(self, *exc_info: Any) -> None:
        self._entered.pop().__exit__(*exc_info)


def under(mesh: AbstractMesh) -> Any:
    """A scope with `mesh` as the mesh in context, to evaluate an equation whose operands are split over `mesh`."""
    present = get_abstract_mesh()
    return nullcontext() if present.empty or present == mesh else config.abstract_mesh((mesh, state.body))


def context_mesh() -> Mesh | None:
    """The mesh of a PartitionSpec: the one of the enclosing `shard_map`. Without it, the one of `set_mesh`, and without
    both, the one of `with mesh:`. If an enclosing `use_abstract_mesh` renames the axes, the mesh has these names."""
    mesh = current_mesh() if state.body is None else state.body[0]
    chosen = config.abstract_mesh.value
    if mesh is None or chosen is None or chosen[1] is not state.body or chosen[0].shape_tuple == mesh.shape_tuple:
        return mesh
    names = chosen[0]
    return Mesh(mesh.devices.reshape(names.axis_sizes), names.axis_names, names.axis_types) if names.size else mesh


def in_context(split: Split | None) -> Split | None:
    """`split` restricted to the mesh axes that have type Explicit in context."""
    if split is None:
        return None
    mesh = get_abstract_mesh()
    if mesh == split.mesh or mesh.shape_tuple != split.mesh.shape_tuple:
        return split
    explicit = mesh.explicit_axes
    axes = tuple(tuple(a for a in names if a in explicit) for names in split.axes)
    return normal(Split(mesh, axes, split.unreduced & {*explicit}, split.reduced & {*explicit}))


def mesh_types(mesh: Any) -> Any:
    """The mesh without devices; its axes have the types of the mesh in context if that has the same shape."""
    context, given = get_abstract_mesh(), mesh.abstract_mesh
    return context if context.shape_tuple == given.shape_tuple else given


# ---------------------------------------------------------------- types of the shards in the body of a `shard_map`


def shard_aval(mesh: Mesh, spec: PartitionSpec, aval: ShapedArray, check_vma: bool, inner: AbstractMesh) -> ShapedArray:
    """The type of one shard. inner: the mesh inside the body."""
    shape = tuple(d // math.prod(mesh.shape[a] for a in spec.axes_of(i)) for i, d in enumerate(aval.shape))
    vma = in_types(spec.all_axes(), mesh) if check_vma else frozenset()
    return aval.update(shape=shape, vma=aval.vma | vma, split=_left_to_types(inner, aval, check_vma))


def _left_to_types(inner: AbstractMesh, aval: ShapedArray, check_vma: bool) -> Split | None:
    """The split of a shard over mesh axes that the body does not map, and the axes over which sums are pending."""
    if aval.split is None:
        return None
    kept = tuple(tuple(a for a in names if a in inner.explicit_axes) for names in aval.split.axes)
    tracked = frozenset(inner.axis_names if check_vma else inner.explicit_axes)
    return normal(Split(inner, kept, aval.split.unreduced & tracked, aval.split.reduced & tracked))


def shard_type(mesh: Mesh, names: frozenset, check_vma: bool, spec: PartitionSpec, aval: ShapedArray) -> ShapedArray:
    """The type of one shard in the body of a `shard_map` over `names`."""
    return shard_aval(mesh, spec, aval, check_vma, in_body(mesh_types(mesh), names))


def unshard_aval(mesh: Mesh, spec: PartitionSpec, aval: ShapedArray, over: frozenset) -> ShapedArray:
    """The type of the whole array, given the type of one shard along the axes in `over`."""
    shape = tuple(d * math.prod(mesh.shape[a] for a in spec.axes_of(i)) for i, d in enumerate(aval.shape))
    whole = of_sharding(NamedSharding(mesh_types(mesh), spec), aval.ndim)
    if aval.split is not None:  # over mesh axes that the body does not map
        split = whole or Split(mesh_types(mesh), ((),) * aval.ndim)
        axes = zip(split.axes, aval.split.axes, strict=True)
        whole = replace(split, axes=tuple((*out, *(a for a in own if a not in out)) for out, own in axes))
    return aval.update(shape=shape, vma=aval.vma - over, split=whole)
