"""The type of every value: `ShapedArray`."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from mpijax.core import dtypes, provided
from mpijax.core.abstract import AbstractValue
from mpijax.core.dimensions import dimension
from mpijax.core.lazy_dataclass import dataclass
from mpijax.core.option import values as options
from mpijax.core.sharding import split as splits
from mpijax.core.sharding.context import get_abstract_mesh, sharding_of, unsplit

NO_AXES: frozenset = frozenset()


@dataclass(frozen=True, kw_only=True)
class ManualAxisType:
    """Over which mesh axes a value varies inside `shard_map`; its unreduced and reduced axes are in `sharding` here.

    Raises ValueError where an axis is varying and unreduced, or varying and reduced.

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
        """The axes of `mesh`, that of the enclosing `shard_map`, over which the value is the same."""
        return frozenset(getattr(mesh, "manual_axes", ())) - self.varying


class ShapedArray(AbstractValue):
    """Shape, dtype, weak type, and how the value lies over mesh axes.

    Instances are interned: two types are equal exactly when they are the same
    object, so jit cache keys hash and compare at the speed of a pointer.

    Attributes:
      shape: tuple of ints, and of `DimExpr`s in a program for several sizes.
      dtype: `numpy.dtype`, or an extended dtype such as a PRNG key's.
      weak_type: True for values born from Python scalars, which promote weakly.
      vma: the mesh axes over which the value varies inside `shard_map`.
      split: how it is split over mesh axes of type Explicit (`core.sharding.split.Split`); None where it is not.

    >>> mpijax.core.ShapedArray((2, 3), np.dtype("float32"))
    ShapedArray(float32[2,3])
    """

    __slots__ = ("shape", "dtype", "weak_type", "vma", "split", "ndim", "size", "_text")

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    vma: frozenset
    split: splits.Split | None
    ndim: int
    size: int
    _text: str | None
    _table: dict[tuple, ShapedArray] = {}
    # Whether any type is split: as long as none is, operations need not look.
    any_split = False

    def __new__(
        cls, shape, dtype, weak_type: bool = False, vma: frozenset = NO_AXES, split: splits.Split | None = None,
        *, sharding: Any = None, memory_space=None,
    ):  # fmt: skip
        # There is one memory: `memory_space` is of JAX.
        if sharding is not None:
            split = splits.of_sharding(sharding, len(shape))
        key = (shape, dtype, weak_type, vma, split)
        try:
            return cls._table[key]
        except (KeyError, TypeError):
            pass
        shape = tuple(dimension(d) for d in shape)
        dtype = dtypes.as_named(dtype)
        key = (shape, dtype, bool(weak_type), frozenset(vma), splits.normal(split))
        found = cls._table.get(key)
        if found is None:
            if key[-1] is not None:
                _check_split(shape, key[-1])
                ShapedArray.any_split = True
            found = object.__new__(cls)
            found.shape, found.dtype, found.weak_type, found.vma, found.split = key
            found.ndim = len(shape)
            found.size = math.prod(shape)
            found._text = None
            found = cls._table.setdefault(key, found)  # one object, also where two threads make it at once
        return found

    def update(self, **changes: Any) -> ShapedArray:
        """This type with some fields replaced; one of another shape is not split, unless `split` says how."""
        get = changes.get
        return ShapedArray(
            get("shape", self.shape),
            get("dtype", self.dtype),
            get("weak_type", self.weak_type),
            get("vma", self.vma),
            get("split", None if "shape" in changes else self.split),
            sharding=get("sharding"),
        )

    def unsplit(self) -> ShapedArray:
        """This type without what it says of mesh axes of type Explicit."""
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

    def inc_rank(self, size: int | None, axis: int | None) -> ShapedArray:
        """The type of examples of this type along a new axis."""
        return self if axis is None else self.with_axis(axis, size)

    def shard(self, mesh: Any, manual_axes: frozenset, check_vma: bool, spec: Any) -> ShapedArray:
        """The type of a shard in the body of a `shard_map` over `manual_axes`."""
        return provided.shard_type(mesh, manual_axes, check_vma, spec, self)

    def unshard(self, mesh: Any, _check_vma: bool, spec: Any) -> ShapedArray:
        """The type of the whole of which this is the type of a shard."""
        return provided.unshard_aval(mesh, spec, self, frozenset(mesh.axis_names))

    def without_axis(self, axis: int, _size: int | None = None) -> ShapedArray:
        """The type of one element along an axis."""
        split = None if self.split is None else self.split.without(axis)
        return self.update(shape=self.shape[:axis] + self.shape[axis + 1 :], split=split)

    def with_axis(self, axis: int, size: int, along: splits.Split | None = None) -> ShapedArray:
        """The type of `size` such values along a new axis. along: how the new axis is split, if it is."""
        split = self.split
        if split is None and along is not None:
            split = splits.Split(along.mesh, ((),) * self.ndim)
        if split is not None:
            split = split.with_axis(axis, () if along is None else along.axes[0])
        return self.update(shape=(*self.shape[:axis], size, *self.shape[axis:]), split=split)

    @property
    def leading_split(self) -> Any:
        """Over which mesh axes the first axis is split, as an entry of a PartitionSpec."""
        return None if self.split is None else splits.entry(self.split.axes[0])

    @property
    def mat(self) -> ManualAxisType:
        """How the value lies over mesh axes inside `shard_map`, by JAX's name."""
        return ManualAxisType(varying=self.vma)

    manual_axis_type = mat

    @property
    def sharding(self) -> Any:
        """How the value is split over axes of type Explicit, as a `NamedSharding` over a mesh without devices."""
        return unsplit(get_abstract_mesh(), self.ndim) if self.split is None else sharding_of(self.split)

    @property
    def said_sharding(self) -> Any:
        """`sharding`, or None where the type says nothing of it."""
        return None if self.split is None else self.sharding

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of one dense copy."""
        return self.size * self.dtype.itemsize

    def str_short(self, short_dtypes: bool = True, mesh_axis_types: bool = False) -> str:
        """`f32[2,3]`, the way Jaxprs print it. mesh_axis_types: add which axes of the mesh are of which type."""
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
        """``{V:i}``: mesh axes that the value varies over, is unreduced and reduced over."""
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
        return ShapedArray(self.shape, dtypes.float0, False, self.vma, self.split)

    at_least_vspace = to_tangent_aval

    def to_ct_aval(self) -> ShapedArray:
        """The type of cotangents: that of tangents, with sums over mesh axes where the value is the same over them."""
        tangent = self.to_tangent_aval()
        return tangent if self.split is None else tangent.update(split=self.split.cotangent())

    def whole_sharding(self) -> Any:
        """The layout over the mesh that a type is split over in which nothing is split."""
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
    """Raise ValueError for axes that mesh axes do not divide evenly."""
    if len(split.axes) != len(shape):
        raise ValueError(f"a type of shape {shape} cannot be split as {splits.entries(split.axes)}: one entry an axis")
    for axis, (size, names) in enumerate(zip(shape, split.axes, strict=True)):
        if names and size % split.parts(axis):
            raise ValueError(
                f"Sharding spec {names} implies that array axis {axis} is partitioned {split.parts(axis)} times, but "
                f"does not evenly divide the dimension size {size}. Got shape: {shape} and sharding "
                f"{splits.entries(split.axes)} over {split.mesh}. Pad the array, or leave that axis whole."
            )


def _axis_types(mesh: Any) -> str:
    """``({Explicit: ('X', 'Y')})``."""
    found: dict[Any, tuple] = {}
    for name, kind in zip(mesh.axis_names, mesh.axis_types, strict=True):
        found[kind] = (*found.get(kind, ()), name)
    return f"({found})"


class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist, for `eval_shape` and ahead-of-time lowering.

    Immutable; equal where all fields are. `sharding` is a layout of an array, or None; of a `Format` its sharding.
    manual_axis_type: over which mesh axes a value varies inside `shard_map`; None where it varies over none.
    is_ref: it stands for a mutable array reference.

    Raises ValueError without a dtype, or for a sharding that is none.

    >>> mpijax.eval_shape(jnp.sin, mpijax.ShapeDtypeStruct((2, 3), jnp.float32))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("shape", "dtype", "sharding", "weak_type", "manual_axis_type", "is_ref")

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    weak_type: bool
    manual_axis_type: ManualAxisType | None
    is_ref: bool

    def __init__(
        self, shape, dtype, *, sharding=None, weak_type: bool = False, manual_axis_type: ManualAxisType | None = None,
        is_ref: bool = False,
    ):  # fmt: skip
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        sharding = getattr(sharding, "sharding", sharding)  # there is one layout in memory
        if sharding is not None and not (hasattr(sharding, "shard_shape") or hasattr(sharding, "axes_of")):
            raise ValueError(
                "sharding should be a mpijax.sharding.Sharding or PartitionSpec, got "
                f"{sharding} of type {type(sharding)}"
            )
        if hasattr(sharding, "check_compatible_aval"):
            sharding.check_compatible_aval(shape)
        elif hasattr(sharding, "axes_of") and len(sharding) > len(shape):
            raise ValueError(
                f"{sharding} is only valid for values of rank at least {len(sharding)}, but was applied to a value of "
                f"rank {len(shape)}."
            )
        put = object.__setattr__
        put(self, "shape", tuple(shape))
        # Not made canonical: it may describe what another process makes.
        put(self, "dtype", dtype if isinstance(dtype, dtypes.ExtendedDType) else np.dtype(dtype))
        put(self, "sharding", sharding)
        put(self, "weak_type", weak_type)
        put(self, "manual_axis_type", manual_axis_type)
        put(self, "is_ref", is_ref)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"{name} cannot be assigned: a ShapeDtypeStruct is immutable; make another with .update()")

    @classmethod
    def of_aval(cls, aval: ShapedArray) -> ShapeDtypeStruct:
        """That of values of a type, with its layout where a mesh with axes of type Explicit is in context."""
        if aval.is_high:
            return aval  # type: ignore[return-value]  # it says more
        sharding = aval.sharding if ShapedArray.any_split else None
        said = sharding if sharding is not None and sharding.mesh.is_explicit else None
        manual = aval.mat if aval.vma else None
        return cls(aval.shape, aval.dtype, sharding=said, weak_type=aval.weak_type, manual_axis_type=manual)

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The shape and dtype of an array, traced value or scalar."""
        aval = provided.typeof(x)
        sharding = getattr(x, "_sharding", None if aval.split is None else aval.sharding)
        return cls(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """This one with some fields replaced."""
        get = changes.get
        return ShapeDtypeStruct(
            get("shape", self.shape),
            get("dtype", self.dtype),
            sharding=get("sharding", self.sharding),
            weak_type=get("weak_type", self.weak_type),
            manual_axis_type=get("manual_axis_type", self.manual_axis_type),
            is_ref=get("is_ref", self.is_ref),
        )

    def __reduce__(self):
        return _struct, self._key()

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
        sharding = f", sharding={self.sharding}" if self.sharding is not None else ""
        weak = f", weak_type={self.weak_type}" if self.weak_type else ""
        manual = f", manual_axis_type={self.manual_axis_type}" if self.manual_axis_type is not None else ""
        ref = ", is_ref=True" if self.is_ref else ""
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak}{manual}{ref})"

    def _key(self):
        return self.shape, self.dtype, self.sharding, self.weak_type, self.manual_axis_type, self.is_ref

    def __eq__(self, other) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _struct(shape, dtype, sharding, weak_type: bool, manual_axis_type: Any, is_ref: bool = False) -> ShapeDtypeStruct:
    """For pickle and copy."""
    return ShapeDtypeStruct(
        shape, dtype, sharding=sharding, weak_type=weak_type, manual_axis_type=manual_axis_type, is_ref=is_ref
    )


def number_of(value: Any, dtype: Any, weak_type: bool = False) -> Any:
    """A number with a dtype; a Python number if it is weak.

    NumPy scalars of 64 bits are narrowed while ``jax_enable_x64`` is off, arrays are not: of them it is an array then.
    """
    number = np.asarray(value, dtype)[()]
    if dtype in dtypes.NARROWED and not options.jax_enable_x64:
        return provided.from_host(number, ShapedArray((), dtype, weak_type))
    return number.item() if weak_type else number
