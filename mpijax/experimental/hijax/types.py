"""Types that libraries define (`HiType`): each says of which values of other types its values consist."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mpijax.core.types.abstract import AbstractValue, to_override
from mpijax.core.types.avals import NO_AXES
from mpijax.core.types.foreign import pytype_aval_mappings
from mpijax.experimental.hijax.operators import follow_types

# What interpreters ask of any type, and these types need not say. Not attributes of the class: dataclasses take those
# for defaults of their fields.
_UNSAID = {"vma": NO_AXES, "split": None, "weak_type": False}


_OF_ARRAYS = ("dtype", "ndim", "shape", "size")


class UserType(AbstractValue):
    """What the types of values that change and of those that do not have in common."""

    is_high = True

    def __hash__(self) -> int:  # noqa: PLE0309 (it raises)
        to_override(self, "__hash__", "comparing types")

    def __eq__(self, other: object) -> bool:
        to_override(self, "__eq__", "comparing types")

    def __getattr__(self, name: str) -> Any:
        try:
            return _UNSAID[name]
        except KeyError:
            hint = (
                " (values of this type are not arrays: use the operations of its library)" if name in _OF_ARRAYS else ""
            )
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}{hint}") from None

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"{type(self).__name__}({fields})"

    @property
    def form(self) -> Any:
        return self.normalize()

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        return str(self)

    def to_tangent_aval(self) -> Any:
        to_override(self, "to_tangent_aval", "differentiation")


class HiType(UserType):
    """Base of types that a library defines, of values that do not change.

    A subclass is hashable and comparable, says of which types its values consist (`lo_ty`), takes a value apart
    (`lower_val`), and puts one together (`raise_val`). Everything else is needed for the transformation it names.

    >>> class Pair:
    ...     def __init__(self, x, y): self.x, self.y = x, y
    >>> class PairTy(mpijax.experimental.hijax.HiType):
    ...     def __init__(self, of): self.of = of
    ...     def __eq__(self, other): return isinstance(other, PairTy) and self.of == other.of
    ...     def __hash__(self): return hash(self.of)
    ...     def lo_ty(self): return [self.of, self.of]
    ...     def lower_val(self, pair): return [pair.x, pair.y]
    ...     def raise_val(self, x, y): return Pair(x, y)
    >>> mpijax.experimental.hijax.register_hitype(Pair, lambda pair: PairTy(mpijax.typeof(pair.x)))
    >>> mpijax.jit(lambda pair: pair)(Pair(jnp.float32(1), jnp.float32(2))).y
    Array(2., dtype=float32)
    """

    def lo_ty(self) -> list[Any]:
        """The types of the values that a value consists of."""
        to_override(self, "lo_ty", "a program with values of the type")

    @property
    def has_parts(self) -> bool:
        return type(self).lower_val is not HiType.lower_val

    def lower_val(self, hi_val: Any) -> list[Any]:
        """The values that a value consists of."""
        to_override(self, "lower_val", "a program with values of the type")

    def raise_val(self, *lo_vals: Any) -> Any:
        """The value that consists of these."""
        to_override(self, "raise_val", "a program with values of the type")

    # ------------------------------------------------------------ derivatives

    def vspace_zero(self) -> Any:
        """Zero, where this is a type of tangents."""
        to_override(self, "vspace_zero", "a derivative that is zero")

    def vspace_add(self, x: Any, y: Any) -> Any:
        """The sum of two values, where this is a type of tangents."""
        to_override(self, "vspace_add", "a gradient with several terms")

    # ------------------------------------------------------------ batches and loops

    def dec_rank(self, size: int | None, spec: Any) -> Any:
        """The type of one of `size` examples, of which `spec` says where they are (None: all share the value)."""
        to_override(self, "dec_rank", "vmap, or scan over values of the type,")

    def inc_rank(self, size: int | None, spec: Any) -> Any:
        """The type of `size` examples of this type."""
        to_override(self, "inc_rank", "vmap, or scan over values of the type,")

    def leading_axis_spec(self) -> Any:
        to_override(self, "leading_axis_spec", "scan over values of the type")

    def without_axis(self, spec: Any, size: int | None = None) -> Any:
        return self.dec_rank(size, spec)

    def with_axis(self, spec: Any, size: int, _along: Any = None) -> Any:
        return self.inc_rank(size, spec)

    # ------------------------------------------------------------ shard_map

    def shard(self, mesh: Any, manual_axes: frozenset, check_vma: bool, spec: Any) -> Any:
        """The type of a shard of a value that is sharded as `spec` says."""
        to_override(self, "shard", "shard_map")

    def unshard(self, mesh: Any, check_vma: bool, spec: Any) -> Any:
        """The type of the whole value, of whose shards this is the type."""
        to_override(self, "unshard", "shard_map")

    def nospec(self, mesh: Any, check_vma: bool, all_names: tuple[Any, ...]) -> Any:
        """The spec of a value that may differ over all axes named."""
        to_override(self, "nospec", "shard_map without in_specs")


def register_hitype(val_cls: type, typeof_fn: Callable[[Any], Any]) -> None:
    """Say that values of a class are values of a type: `typeof_fn(value)`.

    >>> class Row(list): pass
    >>> mpijax.experimental.hijax.register_hitype(Row, lambda row: mpijax.core.ShapedArray((len(row),), np.float32))
    >>> mpijax.typeof(Row([1, 2]))
    ShapedArray(float32[2])
    """
    pytype_aval_mappings[val_cls] = typeof_fn
    if not any("aval" in vars(c) for c in val_cls.__mro__):
        # `typeof` reads this first; a class that forwards attributes would give the type of another value.
        val_cls.aval = property(typeof_fn)  # type: ignore[attr-defined]
    follow_types()
