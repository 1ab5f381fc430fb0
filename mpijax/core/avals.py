"""The type of every value: `ShapedArray`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from mpijax.core import dtypes

NO_AXES: frozenset = frozenset()


@dataclass(frozen=True, kw_only=True)
class ManualAxisType:
    """Over which mesh axes a value varies inside `shard_map`; types of values have no unreduced and reduced axes here.

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


class ShapedArray:
    """Shape, dtype, weak type and the mesh axes over which the value varies.

    Instances are interned: two types are equal exactly when they are the same
    object, so jit cache keys hash and compare at the speed of a pointer.

    Attributes:
      shape: tuple of ints.
      dtype: `numpy.dtype`, or an extended dtype such as a PRNG key's.
      weak_type: True for values born from Python scalars, which promote weakly.
      vma: the mesh axes over which the value varies inside `shard_map`.

    >>> mpijax.core.ShapedArray((2, 3), np.dtype("float32"))
    ShapedArray(float32[2,3])
    """

    __slots__ = ("shape", "dtype", "weak_type", "vma", "ndim", "size", "_text")

    shape: tuple[int, ...]
    dtype: Any
    weak_type: bool
    vma: frozenset
    ndim: int
    size: int
    _text: str | None
    _table: dict[tuple, ShapedArray] = {}

    def __new__(
        cls, shape, dtype, weak_type: bool = False, vma: frozenset = NO_AXES, *, sharding: Any = None, memory_space=None
    ):
        # A layout belongs to an array here, not to its type: `sharding` and `memory_space` are of JAX.
        key = (shape, dtype, weak_type, vma)
        try:
            return cls._table[key]
        except (KeyError, TypeError):
            pass
        shape = tuple(int(d) for d in shape)
        dtype = dtypes.dtype(dtype)
        key = (shape, dtype, bool(weak_type), frozenset(vma))
        found = cls._table.get(key)
        if found is None:
            found = object.__new__(cls)
            found.shape, found.dtype, found.weak_type, found.vma = key
            found.ndim = len(shape)
            found.size = math.prod(shape)
            found._text = None
            cls._table[key] = found
        return found

    def update(self, **changes: Any) -> ShapedArray:
        """This type with some fields replaced."""
        get = changes.get
        return ShapedArray(
            get("shape", self.shape),
            get("dtype", self.dtype),
            get("weak_type", self.weak_type),
            get("vma", self.vma),
        )

    @property
    def mat(self) -> ManualAxisType:
        """How the value lies over mesh axes inside `shard_map`, by JAX's name."""
        return ManualAxisType(varying=self.vma)

    @property
    def sharding(self) -> Any:
        """How the type splits axes, by JAX's name: not at all. Layouts belong to arrays here, not to types."""
        from mpijax.spmd.abstract_mesh import get_abstract_mesh, unsplit  # lies above

        return unsplit(get_abstract_mesh(), self.ndim)

    @property
    def itemsize(self) -> int:
        return self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Bytes of one dense copy."""
        return self.size * self.dtype.itemsize

    def str_short(self, short_dtypes: bool = True) -> str:
        """`f32[2,3]`, the way Jaxprs print it."""
        if short_dtypes:
            if self._text is None:
                self._text = self._render(dtypes.short_name(self.dtype))
            return self._text
        return self._render(self.dtype.name if self.dtype != dtypes.float0 else "float0")

    def _render(self, dtype_name: str) -> str:
        if isinstance(self.dtype, dtypes.TokenDType):
            return self.dtype.name
        dims = ",".join(map(str, self.shape))
        return f"{dtype_name}[{dims}]{self._render_varying()}"

    def _render_varying(self) -> str:
        if not self.vma:
            return ""
        names = sorted(map(str, self.vma))
        return f"{{V:{names[0]}}}" if len(names) == 1 else f"{{V:({','.join(names)})}}"

    def strip_weak_type(self) -> ShapedArray:
        return self.update(weak_type=False) if self.weak_type else self

    def to_tangent_aval(self) -> ShapedArray:
        """The type of tangents of values of this type: itself, or float0 where no derivative exists."""
        if dtypes.issubdtype(self.dtype, np.inexact):
            return self
        return ShapedArray(self.shape, dtypes.float0, False, self.vma)

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
        return ShapedArray, (self.shape, self.dtype, self.weak_type, self.vma)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of unsized object")
        return self.shape[0]


class ShapeDtypeStruct:
    """Shape and dtype of an array that need not exist, for `eval_shape` and ahead-of-time lowering.

    Immutable; equal where all fields are. `sharding` is a layout of an array, or None.

    Raises ValueError without a dtype, or for a sharding that is none.

    >>> mpijax.eval_shape(jnp.sin, mpijax.ShapeDtypeStruct((2, 3), jnp.float32))
    ShapeDtypeStruct(shape=(2, 3), dtype=float32)
    """

    __slots__ = ("shape", "dtype", "sharding", "weak_type")

    shape: tuple[int, ...]
    dtype: Any
    sharding: Any
    weak_type: bool

    def __init__(self, shape, dtype, *, sharding=None, weak_type: bool = False):
        if dtype is None:
            raise ValueError("ShapeDtypeStruct: dtype must be specified.")
        if sharding is not None and not (hasattr(sharding, "shard_shape") or hasattr(sharding, "axes_of")):
            raise ValueError(
                "sharding should be a mpijax.sharding.Sharding or PartitionSpec, got "
                f"{sharding} of type {type(sharding)}"
            )
        put = object.__setattr__
        put(self, "shape", tuple(shape))
        # Not made canonical: it may describe what another process makes.
        put(self, "dtype", dtype if isinstance(dtype, dtypes.ExtendedDType) else np.dtype(dtype))
        put(self, "sharding", sharding)
        put(self, "weak_type", weak_type)

    def __setattr__(self, name: str, value: Any) -> None:
        raise RuntimeError(f"{name} cannot be assigned: a ShapeDtypeStruct is immutable; make another with .update()")

    @classmethod
    def like(cls, x: Any) -> ShapeDtypeStruct:
        """The shape and dtype of an array, traced value or scalar."""
        from mpijax.core.trace import typeof  # lies above

        aval = typeof(x)
        sharding = getattr(x, "_sharding", None)
        return cls(aval.shape, aval.dtype, sharding=sharding, weak_type=aval.weak_type)

    def update(self, **changes: Any) -> ShapeDtypeStruct:
        """This one with some fields replaced."""
        get = changes.get
        return ShapeDtypeStruct(
            get("shape", self.shape),
            get("dtype", self.dtype),
            sharding=get("sharding", self.sharding),
            weak_type=get("weak_type", self.weak_type),
        )

    def __reduce__(self):
        return _struct, (self.shape, self.dtype, self.sharding, self.weak_type)

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
        return f"ShapeDtypeStruct(shape={self.shape}, dtype={self.dtype.name}{sharding}{weak})"

    def _key(self):
        return self.shape, self.dtype, self.sharding, self.weak_type

    def __eq__(self, other) -> bool:
        return isinstance(other, ShapeDtypeStruct) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())


def _struct(shape, dtype, sharding, weak_type: bool) -> ShapeDtypeStruct:
    """For pickle and copy."""
    return ShapeDtypeStruct(shape, dtype, sharding=sharding, weak_type=weak_type)
