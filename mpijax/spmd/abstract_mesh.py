"""Meshes without devices: names, sizes and kinds of axes."""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any, NoReturn

from mpijax.core import config
from mpijax.core.split import Split, entry
from mpijax.core.trace import state
from mpijax.spmd.mesh import AxisType, Mesh, NamedSharding, current_mesh, types_of_axes
from mpijax.spmd.partition_spec import PartitionSpec


@dataclass(frozen=True)
class AbstractDevice:
    """A kind of device that a program is traced for; here there is one, the CPU, so that none is asked which.

    >>> mpijax.sharding.AbstractDevice(device_kind="cpu", num_cores=None, platform="cpu")
    AbstractDevice(device_kind=cpu, num_cores=None, platform=cpu)
    """

    device_kind: str
    num_cores: int | None
    platform: str

    def __repr__(self) -> str:
        return f"AbstractDevice(device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform})"


class AbstractMesh:
    """Named axes and their sizes.

    Args:
      axis_sizes, axis_names: of equal length.
      axis_types: an `AxisType` for each axis; Auto unless given.
      abstract_device: the kind of devices, which nothing depends on.

    >>> mpijax.sharding.AbstractMesh((4, 2), ("x", "y")).axis_sizes
    (4, 2)
    """

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: Sequence[Any],
        axis_types: AxisType | Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ):
        self.abstract_device = abstract_device
        self.axis_sizes, self.axis_names = tuple(axis_sizes), tuple(axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ValueError(
                f"AbstractMesh: one size for each name, got axis_sizes={self.axis_sizes}, axis_names={self.axis_names}"
            )
        self.axis_types = types_of_axes(axis_types, self.axis_names, "AbstractMesh")

    size = property(lambda self: math.prod(self.axis_sizes) if self.axis_sizes else 0)
    is_local = False
    is_explicit = property(lambda self: AxisType.Explicit in self.axis_types)
    empty = property(lambda self: self.size == 0)
    shape_tuple = property(lambda self: tuple(zip(self.axis_names, self.axis_sizes, strict=True)))
    shape = property(lambda self: OrderedDict(self.shape_tuple))
    abstract_mesh = property(lambda self: self)
    auto_axes = property(lambda self: self._axes_of(AxisType.Auto))
    explicit_axes = property(lambda self: self._axes_of(AxisType.Explicit))
    manual_axes = property(lambda self: self._axes_of(AxisType.Manual))
    are_all_axes_auto = property(lambda self: self._are_all(AxisType.Auto))
    are_all_axes_explicit = property(lambda self: self._are_all(AxisType.Explicit))
    are_all_axes_manual = property(lambda self: self._are_all(AxisType.Manual))

    def _axes_of(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, k in zip(self.axis_names, self.axis_types, strict=True) if k is kind)

    def _are_all(self, kind: AxisType) -> bool:
        return bool(self.axis_types) and all(k is kind for k in self.axis_types)

    def update(self, axis_sizes=None, axis_names=None, axis_types=None, **changes: Any) -> AbstractMesh:
        """A copy with changes; `abstract_device` is given by keyword."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **{"abstract_device": self.abstract_device, **changes},
        )

    def update_axis_types(self, name_to_type: Mapping[Any, AxisType]) -> AbstractMesh:
        """A copy in which the named axes are of other types."""
        kinds = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple(name_to_type.get(n, kind) for n, kind in kinds))

    @property
    def devices(self) -> NoReturn:
        raise ValueError("AbstractMesh does not implement devices: it has names and sizes of axes only. Use a Mesh.")

    @property
    def is_multi_process(self) -> NoReturn:
        raise ValueError(
            "is_fully_addressable is not implemented for `jax.sharding.AbstractMesh`, which has no devices. Use a Mesh."
        )

    def _plain_(self) -> tuple:
        return self.axis_sizes, self.axis_names, self.axis_types

    @staticmethod
    def _from_plain_(sizes, names, kinds) -> AbstractMesh:
        return AbstractMesh(sizes, names, kinds)

    def _key(self) -> tuple:
        return self.axis_sizes, self.axis_names, self.axis_types, self.abstract_device

    def __eq__(self, other: object) -> bool:
        return isinstance(other, AbstractMesh) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        axes = ", ".join(f"'{n}': {s}" for n, s in self.shape_tuple) or "()"
        return f"AbstractMesh({axes}, axis_types={self.axis_types})"


@cache
def unsplit(mesh: AbstractMesh, ndim: int) -> NamedSharding:
    """The layout over a mesh of an array of which no axis is split."""
    return NamedSharding(mesh, PartitionSpec(*[None] * ndim))


@cache
def sharding_of(split: Split) -> NamedSharding:
    """What the type of a value says of its layout."""
    spec = PartitionSpec(*map(entry, split.axes), unreduced=split.unreduced, reduced=split.reduced)
    return NamedSharding(split.mesh, spec)


@lru_cache(maxsize=256)
def in_body(mesh: AbstractMesh, manual: frozenset) -> AbstractMesh:
    """`mesh` in the body of `shard_map`s over the axes `manual`."""
    return mesh.update_axis_types(dict.fromkeys(manual, AxisType.Manual))


def get_abstract_mesh() -> AbstractMesh:
    """The mesh of the enclosing `shard_map`, or that of `set_mesh`, without its devices; one without axes if none.

    In the body of a `shard_map` the axes it maps are of type Manual.

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
    mesh = current_mesh()
    return AbstractMesh((), ()) if mesh is None else mesh.abstract_mesh


class use_abstract_mesh:
    """Inside, `get_abstract_mesh` gives another mesh, as a rule the same one with other types of axes.

    In the body of a `shard_map` that is entered inside, it gives the mesh of that again.

    Raises:
      ValueError: for what is no AbstractMesh; where it is entered, for a mesh of another size than the present one.

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
    """The scope in which an equation was traced whose operands are split over the axes of `mesh`."""
    present = get_abstract_mesh()
    return nullcontext() if present.empty or present == mesh else config.abstract_mesh((mesh, state.body))


def context_mesh() -> Mesh | None:
    """The mesh that a PartitionSpec is about: that of the enclosing `shard_map`, or else of `set_mesh`; its devices
    under the names of an enclosing `use_abstract_mesh`, where these are others."""
    mesh = current_mesh() if state.body is None else state.body[0]
    chosen = config.abstract_mesh.value
    if mesh is None or chosen is None or chosen[1] is not state.body or chosen[0].shape_tuple == mesh.shape_tuple:
        return mesh
    names = chosen[0]
    return Mesh(mesh.devices.reshape(names.axis_sizes), names.axis_names, names.axis_types) if names.size else mesh
