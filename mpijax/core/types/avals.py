"""Defines `ShapedArray`, the type of every value."""

from __future__ import annotations

import math
from typing import Any
from weakref import WeakValueDictionary

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base import locks, provided
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.base.option import values as options
from mpijax.core.shapes.dimensions import dimension
from mpijax.core.sharding import split as splits
from mpijax.core.sharding.context import (
    context_mesh,
    get_abstract_mesh,
    of_sharding,
    shard_type,
    sharding_of,
    unshard_aval,
    unsplit,
)
from mpijax.core.sharding.format import Format, Layout
from mpijax.core.sharding.memory_space import Space
from mpijax.core.sharding.shardings import NamedSharding
from mpijax.core.sharding.spec import PartitionSpec
from mpijax.core.types.abstract import AbstractValue

NO_AXES: frozenset = frozenset()


@dataclass(frozen=True, kw_only=True)
class ManualAxisType:
    """The mesh axes over which a value is varying, unreduced and reduced inside `shard_map`.

    Shards of an unreduced value differ, and their sum is pending. Shards of a reduced value are equal, and the sum of
    their cotangents is pending.

    Raises ValueError for an axis that is both varying and unreduced, or both varying and reduced.

    >>> mpijax.sharding.ManualAxisType(varying=frozenset({"x"})).varying
    frozenset({'x'})
    """

    varying: frozenset = NO_AXES
    unreduced: frozenset = NO_AXES
    reduced: frozenset = NO_AXES

    def __post_init__(self) -> None:
        for name in ("varying", "unreduced", "reduced"):
            object.__setattr__(self, name, frozenset(getattr(self, name)))
        for name in ("unreduced", "reduced"):
            if self.varying & getattr(self, name):
                raise ValueError(
                    f"varying and {name} cannot have common mesh axes. Got varying={self.varying} and "
                    f"{name}={getattr(self, name)}"
                )

    def invarying(self, mesh: Any) -> frozenset:
        """The manual axes of `mesh` over which the value is neither varying nor unreduced nor reduced. `mesh` is that
        of the enclosing `shard_map`."""
        return frozenset(getattr(mesh, "manual_axes", ())) - self.vur

    @property
    def vur(self) -> frozenset:
        """The axes over which the value is varying, unreduced or reduced."""
        return self.varying | self.unreduced | self.reduced


class ShapedArray(AbstractValue):
    """Shape, dtype, weak type and mesh axes of a value.

    Instances are interned: equal types are the same object while one is in use. So jit cache keys hash and compare by
    pointer.

    Attributes:
      shape: tuple of ints; also of `DimExpr`s in a shape-polymorphic program.
      dtype: `numpy.dtype`, or an extended dtype such as a PRNG key's.
      weak_type: True for values made from Python scalars, which promote weakly.
      vma: the mesh axes over which the value varies inside `shard_map`.
      split: how its axes are split over Explicit mesh axes (`core.sharding.split.Split`); None if they are not split.

    >>> mpijax.core.ShapedArray((2, 3), np.dtype("float32"))
    ShapedArray(float32[2,3])
    """

    __slots__ = ("__weakref__", "shape", "dtype", "weak_type", "vma", "split", "ndim", "size", "_text")

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    vma: frozenset
    split: splits.Split | None
    ndim: int
    size: int
    _text: str | None
    _table: WeakValueDictionary[tuple, ShapedArray] = WeakValueDictionary()
    _lock = locks.reentrant_lock()
    # Whether any type is split. Operations skip all checks of splits while it is False.
    any_split = False

    def __new__(
        cls, shape, dtype, weak_type: bool = False, vma: frozenset = NO_AXES, split: splits.Split | None = None,
        *, sharding: Any = None, manual_axis_type: ManualAxisType | None = None, memory_space=None,
    ):  # fmt: skip
        # `memory_space` exists for JAX's signature only: mpijax has one memory space. Of `manual_axis_type`, the axes
        # that are unreduced and reduced are those of the sharding.
        if manual_axis_type is not None:
            vma = manual_axis_type.varying
        if sharding is not None:
            split = of_sharding(sharding, len(shape))
        key = (shape, dtype, weak_type, vma, split)
        try:
            found = cls._table.get(key)
        except TypeError:  # a shape that is a list
            found = None
        if found is not None:
            return found
        shape = tuple(dimension(d) for d in shape)
        dtype = dtypes.as_named(dtype)
        key = (shape, dtype, bool(weak_type), frozenset(vma), splits.normal(split))
        with cls._lock:  # one object even if two threads create it at the same time
            found = cls._table.get(key)
            if found is None:
                found = cls._table[key] = cls._made(*key)
        return found

    @classmethod
    def _made(cls, shape, dtype, weak_type: bool, vma: frozenset, split: splits.Split | None) -> ShapedArray:
        if split is not None:
            _check_split(shape, split)
            ShapedArray.any_split = True
        made = object.__new__(cls)
        made.shape, made.dtype, made.weak_type, made.vma, made.split = shape, dtype, weak_type, vma, split
        made.ndim = len(shape)
        made.size = math.prod(shape)
        made._text = None
        return made

    def update(self, **changes: Any) -> ShapedArray:
        """This type with some fields replaced. A new shape drops the split unless `split` is given."""
        get = changes.get
        return ShapedArray(
            get("shape", self.shape),
            get("dtype", self.dtype),
            get("weak_type", self.weak_type),
            get("vma", self.vma),
            get("split", None if "shape" in changes else self.split),
            sharding=get("sharding"),
            manual_axis_type=get("manual_axis_type"),
        )

    def unsplit(self) -> ShapedArray:
        """This type without its split over Explicit mesh axes."""
        return self if self.split is None else self.update(split=None)

    @property
    def form(self) -> tuple:
        return self.shape, self.dtype

    @property
    def has_no_tangent(self) -> bool:
        return self.dtype == dtypes.float0

    def vspace_add(self, x: Any, y: Any) -> Any:
        """The sum of two values of this type."""
        return provided.add_tangents(x, y)

    def dec_rank(self, _size: int | None, axis: int | None) -> ShapedArray:
        """The type of one of the examples that lie along an axis."""
        return self if axis is None else self.without_axis(axis)

    def inc_rank(self, size: Any, axis: int | None) -> ShapedArray:
        """The type of examples of this type along a new axis."""
        return self if axis is None else self.with_axis(axis, size)

    def shard(self, mesh: Any, manual_axes: frozenset, check_vma: bool, spec: Any) -> ShapedArray:
        """The type of a shard in the body of a `shard_map` over `manual_axes`."""
        return shard_type(mesh, manual_axes, check_vma, spec, self)

    def unshard(self, mesh: Any, _check_vma: bool, spec: Any) -> ShapedArray:
        """The type of the whole of which this is the type of a shard."""
        return unshard_aval(mesh, spec, self, frozenset(mesh.axis_names))

    def without_axis(self, axis: int, _size: int | None = None) -> ShapedArray:
        """This type with one axis removed."""
        split = None if self.split is None else self.split.without(axis)
        return self.update(shape=self.shape[:axis] + self.shape[axis + 1 :], split=split)

    def with_axis(self, axis: int, size: int, along: splits.Split | None = None) -> ShapedArray:
        """This type with a new axis of length `size`. along: how the new axis is split, if it is."""
        split = self.split
        if split is None and along is not None:
            split = splits.Split(along.mesh, ((),) * self.ndim)
        if split is not None:
            split = split.with_axis(axis, () if along is None else along.axes[0])
        return self.update(shape=(*self.shape[:axis], size, *self.shape[axis:]), split=split)

    @property
    def pending(self) -> tuple[Any, ...]:
        """The mesh axes over which a sum of the value is pending outside of `shard_map` bodies."""
        return () if self.split is None else self.split.pending

    def of_summands(self) -> ShapedArray:
        """The type of the array of summands of a pending sum: the summands along one more axis in front for each
        pending mesh axis. A type without pending sums stays, without its reduced axes."""
        if self.split is None:
            return self
        lead = tuple(self.split.mesh.shape[a] for a in self.pending)
        return self.update(shape=(*lead, *self.shape), split=self.split.of_summands())

    @property
    def leading_split(self) -> Any:
        """The mesh axes that split the first axis, as an entry of a PartitionSpec."""
        return None if self.split is None else splits.entry(self.split.axes[0])

    @property
    def mat(self) -> ManualAxisType:
        """The mesh axes over which the value is varying, unreduced and reduced inside `shard_map`."""
        if self.split is None:
            return ManualAxisType(varying=self.vma)
        manual = frozenset(self.split.mesh.manual_axes)
        unreduced, reduced = self.split.unreduced & manual, self.split.reduced & manual
        return ManualAxisType(varying=self.vma, unreduced=unreduced, reduced=reduced)

    manual_axis_type = mat

    @property
    def sharding(self) -> Any:
        """How the value is split over Explicit axes, as a `NamedSharding` over a mesh without devices."""
        return unsplit(get_abstract_mesh(), self.ndim) if self.split is None else sharding_of(self.split.outside)

    @property
    def said_sharding(self) -> Any:
        """`sharding`, or None if the type is not split over Explicit axes."""
        return None if self.split is None or self.split.outside.is_trivial else self.sharding

    @property
    def memory_space(self) -> Space:
        """The default space. Arrays have a memory kind; types have none."""
        return Space.Device

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Size in bytes of one dense copy."""
        return self.size * self.dtype.itemsize

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        """`float32[2,3]`, or `f32[2,3]` as Jaxprs print it with `short_dtypes`. mesh_axis_types: also print the
        type of each mesh axis."""
        if mesh_axis_types:
            return self.str_short(short_dtypes) + _axis_types(self.sharding.mesh)
        if short_dtypes:
            if self._text is None:
                self._text = self._render(dtypes.short_name(self.dtype))
            return self._text
        return self._render(self.dtype.name if self.dtype != dtypes.float0 else "float0")

    def _render(self, dtype_name: str) -> str:
        if isinstance(self.dtype, dtypes.TokenDType):
            return self.dtype.name
        split = self.split
        dims = ",".join(map(str, self.shape)) if split is None else splits.dimensions(self.shape, split.axes)
        return f"{dtype_name}[{dims}]{self._render_axes()}"

    def _render_axes(self) -> str:
        """``{V:i}``: the mesh axes over which the value is varying, unreduced and reduced."""
        named = [("V", self.vma)]
        if self.split is not None:
            named += [("U", self.split.unreduced), ("R", self.split.reduced)]
        said = [(mark, sorted(map(str, axes))) for mark, axes in named if axes]
        texts = [f"{mark}:{names[0]}" if len(names) == 1 else f"{mark}:({','.join(names)})" for mark, names in said]
        return f"{{{', '.join(texts)}}}" if texts else ""

    def strip_weak_type(self) -> ShapedArray:
        return self.update(weak_type=False) if self.weak_type else self

    def to_tangent_aval(self) -> ShapedArray:
        """The type of tangents of values of this type: itself, or float0 where no derivative exists."""
        if dtypes.issubdtype(self.dtype, np.inexact):
            return self
        if isinstance(self.dtype, dtypes.ExtendedDType) and (tangent := self.dtype.tangent_dtype()) is not None:
            return self.update(dtype=tangent, weak_type=False)
        return ShapedArray(self.shape, dtypes.float0, False, self.vma, self.split)

    at_least_vspace = to_tangent_aval

    def to_ct_aval(self) -> ShapedArray:
        """The type of cotangents: the tangent type, with unreduced and reduced axes exchanged."""
        tangent = self.to_tangent_aval()
        return tangent if self.split is None else tangent.update(split=self.split.cotangent())

    def whole_sharding(self) -> Any:
        """The replicated sharding over the mesh of this type."""
        return unsplit(self.sharding.mesh, self.ndim)

    def __repr__(self) -> str:
        if isinstance(self.dtype, dtypes.TokenDType):
            return "AbstractToken()"
        weak = ", weak_type=True" if self.weak_type else ""
        return f"ShapedArray({self.str_short(short_dtypes=False)}{weak})"

    def __str__(self) -> str:
        if isinstance(self.dtype, dtypes.TokenDType):
            return repr(self)
        return ("~" if self.weak_type else "") + self.str_short(short_dtypes=False)

    def __reduce__(self):
        return ShapedArray, (self.shape, self.dtype, self.weak_type, self.vma, self.split)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]


def _check_split(shape: tuple[int, ...], split: splits.Split) -> None:
    """Raise ValueError for array axes that their mesh axes do not divide evenly."""
    if len(split.axes) != len(shape):
        raise ValueError(
            f"A type of shape {shape} cannot be split as {splits.entries(split.axes)}: give one entry for each of its "
            f"{len(shape)} axes."
        )
    for axis, (size, names) in enumerate(zip(shape, split.axes, strict=True)):
        if names and size % split.parts(axis):
            raise ValueError(
                f"Sharding spec {names} implies that array axis {axis} is partitioned {split.parts(axis)} times, but "
                f"does not evenly divide the dimension size {size}. Got shape: {shape} and sharding "
                f"{splits.entries(split.axes)} over {split.mesh}. Pad the array, or do not shard that axis."
            )


def _axis_types(mesh: Any) -> str:
    """``({Explicit: ('X', 'Y')})``."""
    found: dict[Any, tuple] = {}
    for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True):
        found[kind] = (*found.get(kind, ()), name)
    return f"({found})"


class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist, for `eval_shape` and ahead-of-time lowering.

    Immutable; two are equal if all fields are equal. `sharding` is a sharding, a `Format` with one, or None. A
    PartitionSpec gives the sharding over the mesh in context; without a mesh, reading `sharding` raises TypeError.
    manual_axis_type: the mesh axes over which a value varies inside `shard_map`; None if it varies over none.
    is_ref: it describes a mutable array reference.

    Raises ValueError without a dtype, or if `sharding` is not a sharding.

    >>> mpijax.eval_shape(jnp.sin, mpijax.ShapeDtypeStruct((2, 3), jnp.float32))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("shape", "dtype", "_sharding", "weak_type", "manual_axis_type", "is_ref", "_layout")

    shape: tuple[int, ...]
    dtype: Any
    _sharding: Any
    weak_type: bool
    manual_axis_type: ManualAxisType | None
    is_ref: bool
    _layout: Layout | None

    def __init__(
        self, shape, dtype, *, sharding=None, weak_type: bool = False, manual_axis_type: ManualAxisType | None = None,
        is_ref: bool = False,
    ):  # fmt: skip
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        layout = None
        if isinstance(sharding, Format):
            sharding.refuse_auto("in a `ShapeDtypeStruct`")
            layout, sharding = sharding.layout, sharding.sharding
        if sharding is not None and not (hasattr(sharding, "shard_shape") or isinstance(sharding, PartitionSpec)):
            raise ValueError(
                "sharding should be a mpijax.sharding.Sharding or PartitionSpec, got "
                f"{sharding} of type {type(sharding)}"
            )
        if hasattr(sharding, "check_compatible_aval"):
            sharding.check_compatible_aval(shape)
        elif isinstance(sharding, PartitionSpec) and len(sharding) > len(shape):
            raise ValueError(
                f"{sharding} is only valid for values of rank at least {len(sharding)}, but was applied to a value of "
                f"rank {len(shape)}."
            )
        put = object.__setattr__
        put(self, "shape", tuple(shape))
        # The dtype is not canonicalized: the struct may describe an array of another process.
        put(self, "dtype", dtype if isinstance(dtype, dtypes.ExtendedDType) else np.dtype(dtype))
        put(self, "_sharding", sharding)
        put(self, "weak_type", weak_type)
        put(self, "manual_axis_type", manual_axis_type)
        put(self, "is_ref", is_ref)
        put(self, "_layout", layout)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"{name} cannot be assigned: a ShapeDtypeStruct is immutable; make another with .update()")

    @classmethod
    def of_aval(cls, aval: ShapedArray) -> ShapeDtypeStruct:
        """The struct for a type. It has the type's sharding if the mesh in context has Explicit axes."""
        if aval.is_high:
            return aval  # type: ignore[return-value]  # it says more
        sharding = aval.sharding if ShapedArray.any_split else None
        said = sharding if sharding is not None and sharding.mesh.is_explicit else None
        manual = aval.mat if aval.mat.vur else None
        return cls(aval.shape, aval.dtype, sharding=said, weak_type=aval.weak_type, manual_axis_type=manual)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The struct of an array, traced value or scalar."""
        aval = provided.typeof(x)
        sharding = getattr(x, "_sharding", None if aval.split is None else aval.sharding)
        return cls(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """A copy with some fields replaced."""
        get = changes.get
        return ShapeDtypeStruct(
            get("shape", self.shape),
            get("dtype", self.dtype),
            sharding=get("sharding", Format(self._layout, self._sharding)),
            weak_type=get("weak_type", self.weak_type),
            manual_axis_type=get("manual_axis_type", self.manual_axis_type),
            is_ref=get("is_ref", self.is_ref),
        )

    def __reduce__(self):
        return _struct, self._key()

    @property
    def sharding(self) -> Any:
        if not isinstance(self._sharding, PartitionSpec):
            return self._sharding
        mesh = context_mesh()
        if mesh is None:
            raise TypeError(
                "When specifying PartitionSpec to `ShapeDtypeStruct`, the context mesh cannot be empty. Please use "
                f"`jax.set_mesh` to set the mesh context, or give a NamedSharding in place of {self._sharding}."
            )
        return NamedSharding(mesh, self._sharding)

    @property
    def format(self) -> Format:
        """The sharding, and the layout in memory that was given with it, or None."""
        return Format(self._layout, self.sharding)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]

    def __repr__(self) -> str:
        sharding = f", sharding={self._sharding}" if self._sharding is not None else ""
        layout = f", format={self._layout}" if self._layout is not None else ""
        weak = f", weak_type={self.weak_type}" if self.weak_type else ""
        manual = f", manual_axis_type={self.manual_axis_type}" if self.manual_axis_type is not None else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{layout}{weak}{manual}{ref})"

    def _key(self):
        return self.shape, self.dtype, self._sharding, self.weak_type, self.manual_axis_type, self.is_ref, self._layout

    def __eq__(self, other) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _struct(
    shape, dtype, sharding, weak_type: bool, manual_axis_type: Any, is_ref: bool = False, layout: Layout | None = None
) -> ShapeDtypeStruct:
    """Constructor for pickle and copy."""
    return ShapeDtypeStruct(
        shape, dtype, sharding=Format(layout, sharding), weak_type=weak_type, manual_axis_type=manual_axis_type,
        is_ref=is_ref,
    )  # fmt: skip


def type_of_size() -> ShapedArray:
    """The type of the value of a symbolic size: a weakly typed integer."""
    return ShapedArray((), dtypes.default_int_dtype(), True)


def from_host(value: np.ndarray, aval: ShapedArray) -> Any:
    """An array of type `aval` with a copy of the elements of an ndarray."""
    return provided.from_host(value, aval)


def number_of(value: Any, dtype: Any, weak_type: bool = False) -> Any:
    """A number with a dtype; a Python number if it is weakly typed.

    While ``jax_enable_x64`` is off, NumPy scalars of 64 bits are narrowed, but arrays are not. A 64-bit dtype then
    gives an array.
    """
    number = np.asarray(value, dtype)[()]
    if dtype in dtypes.NARROWED and not options.jax_enable_x64:
        return from_host(number, ShapedArray((), dtype, weak_type))
    return number.item() if weak_type else number
