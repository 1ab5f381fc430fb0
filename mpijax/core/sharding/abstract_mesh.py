"""Defines meshes without devices: names, sizes and types of mesh axes."""

from __future__ import annotations

import enum
import math
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

from mpijax.core.base.lazy_dataclass import dataclass


class AxisType(enum.Enum):
    """Who chooses how arrays are split over a mesh axis: the compiler (Auto), the types of values (Explicit), or the
    user in the body of a `shard_map` over the axis (Manual).

    >>> mpijax.make_mesh((1,), ("x",), axis_types=(mpijax.sharding.AxisType.Auto,)).axis_types
    (Auto,)
    """

    Auto = enum.auto()
    Explicit = enum.auto()
    Manual = enum.auto()

    def __repr__(self) -> str:
        return self.name


def types_of_axes(given: Any, axis_names: tuple, what: str) -> tuple[AxisType, ...]:
    """The types of a mesh's axes; Auto if none are given.

    Raises TypeError for a value that is not an AxisType, ValueError if their number differs from the number of axes.
    """
    if given is None:
        return (AxisType.Auto,) * len(axis_names)
    kinds = tuple(given) if isinstance(given, (tuple, list)) else (given,)
    if not all(isinstance(kind, AxisType) for kind in kinds):
        raise TypeError(
            f"axis_types passed to {what} must be of type `jax.sharding.AxisType`. Got {kinds} of type "
            f"{tuple(map(type, kinds))}"
        )
    if len(kinds) != len(axis_names):
        raise ValueError(
            f"Number of axis names should match the number of axis_types. Got axis_names={axis_names} and "
            f"axis_types={kinds}"
        )
    return kinds


@dataclass(frozen=True)
class AbstractDevice:
    """The kind of device that a program is traced for. mpijax has one kind, the CPU, and ignores this.

    >>> mpijax.sharding.AbstractDevice(device_kind="cpu", num_cores=None, platform="cpu")
    AbstractDevice(device_kind=cpu, num_cores=None, platform=cpu)
    """

    device_kind: str
    num_cores: int | None
    platform: str

    @property
    def description(self) -> str:
        """The fields with their names."""
        return f"device_kind={self.device_kind}, num_cores={self.num_cores}, platform={self.platform}"

    def __repr__(self) -> str:
        return f"AbstractDevice({self.description})"


class AbstractMesh:
    """Named axes and their sizes.

    Args:
      axis_sizes, axis_names: of equal length.
      axis_types: an `AxisType` for each axis; Auto unless given.
      abstract_device: the kind of devices. Meshes are equal if one of them does not say it.

    >>> mpijax.sharding.AbstractMesh((4, 2), ("x", "y")).axis_sizes
    (4, 2)
    """

    def __init__(
        self,
        axis_sizes: Sequence[int],
        axis_names: str | Sequence[Any],
        axis_types: AxisType | Sequence[AxisType] | None = None,
        *,
        abstract_device: AbstractDevice | None = None,
    ):
        self.abstract_device = abstract_device
        axis_names = (axis_names,) if isinstance(axis_names, str) else axis_names
        self.axis_sizes, self.axis_names = tuple(axis_sizes), tuple(axis_names)
        if len(self.axis_sizes) != len(self.axis_names):
            raise ValueError(
                f"AbstractMesh needs one size for each name, got axis_sizes={self.axis_sizes}, "
                f"axis_names={self.axis_names}"
            )
        self.axis_types = types_of_axes(axis_types, self.axis_names, "AbstractMesh")

    size = property(lambda self: math.prod(self.axis_sizes) if self.axis_sizes else 0)
    is_local = stands_in = False
    is_explicit = property(lambda self: AxisType.Explicit in self.axis_types)
    _any_axis_explicit = is_explicit  # JAX's name, which JAXNS uses
    empty = property(lambda self: self.size == 0)
    shape_tuple = property(lambda self: tuple(zip(self.axis_names, self.axis_sizes, strict=True)))
    shape = property(lambda self: OrderedDict(self.shape_tuple))
    processes_along = shape  # an AbstractMesh has no processes: each device counts as one
    abstract_mesh = property(lambda self: self)
    auto_axes = property(lambda self: self._axes_of(AxisType.Auto))
    explicit_axes = property(lambda self: self._axes_of(AxisType.Explicit))
    manual_axes = property(lambda self: self._axes_of(AxisType.Manual))
    are_all_axes_auto = property(lambda self: self._are_all(AxisType.Auto))
    are_all_axes_explicit = property(lambda self: self._are_all(AxisType.Explicit))
    are_all_axes_manual = property(lambda self: self._are_all(AxisType.Manual))

    @property
    def holds_several(self) -> bool:
        """Whether a process owns several of the devices. False: there are no devices."""
        return False

    @property
    def lies_apart(self) -> bool:
        """Whether the devices of a process do not form a block of the mesh. False: there are no devices."""
        return False

    @property
    def within(self) -> dict[Any, int]:
        """The number of devices of one process along each axis."""
        return dict.fromkeys(self.axis_names, 1)

    def process_axes(self, axes: Sequence[Any]) -> tuple[Any, ...]:
        """The given mesh axes without those of size 1."""
        return tuple(a for a in axes if self.shape[a] > 1)

    def _axes_of(self, kind: AxisType) -> tuple[Any, ...]:
        return tuple(n for n, k in zip(self.axis_names, self.axis_types, strict=True) if k is kind)

    def _are_all(self, kind: AxisType) -> bool:
        return bool(self.axis_types) and all(k is kind for k in self.axis_types)

    def update(self, axis_sizes=None, axis_names=None, axis_types=None, **changes: Any) -> AbstractMesh:
        """A copy with changes; pass `abstract_device` by keyword."""
        return AbstractMesh(
            self.axis_sizes if axis_sizes is None else axis_sizes,
            self.axis_names if axis_names is None else axis_names,
            self.axis_types if axis_types is None else axis_types,
            **{"abstract_device": self.abstract_device, **changes},
        )

    def update_axis_types(self, name_to_type: Mapping[Any, AxisType]) -> AbstractMesh:
        """A copy with other types for the named axes."""
        kinds = zip(self.axis_names, self.axis_types, strict=True)
        return self.update(axis_types=tuple(name_to_type.get(n, kind) for n, kind in kinds))

    @property
    def devices(self) -> NoReturn:
        raise ValueError("AbstractMesh does not implement devices: it has names and sizes of axes only. Use a Mesh.")

    local_devices = device_ids = coordinates = processes = place = lacks_processes = property(lambda self: self.devices)

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
        return self.axis_sizes, self.axis_names, self.axis_types

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        if not isinstance(other, AbstractMesh) or self._key() != other._key():
            return False
        mine, others = self.abstract_device, other.abstract_device
        return mine is None or others is None or mine == others

    def __hash__(self) -> int:
        return hash(self._key())

    def __repr__(self) -> str:
        axes = ", ".join(f"'{n}': {s}" for n, s in self.shape_tuple) or "()"
        device = self.abstract_device
        kind = "" if device is None else f", {device.description}"
        return f"AbstractMesh({axes}, axis_types={self.axis_types}{kind})"
