"""What all types of values have in common: arrays', references', and those that libraries define."""

from __future__ import annotations

from types import MethodType
from typing import Any, NamedTuple, NoReturn


class AbstractValue:
    """Base of the types of values. The defaults are those of a type that consists of itself, as arrays' types do.

    Attributes:
      is_high: whether values consist of values of other types (`lo_ty`); programs are compiled from those.
      has_qdd: whether values change while they live, and with them what is known of their type.
      is_ref: whether values are mutable array references.

    >>> isinstance(mpijax.typeof(1.0), mpijax.core.AbstractValue)
    True
    """

    __slots__ = ()

    # Whether libraries have defined types or operations on their values: else programs need not look for any.
    any_high = False

    is_high = False
    has_qdd = False
    is_ref = False

    @property
    def form(self) -> Any:
        """What must agree where a value of one type is to take the place of one of another."""
        return self

    @property
    def has_no_tangent(self) -> bool:
        """Whether it is the type of tangents of values that have no derivative."""
        return False

    def to_tangent_aval(self) -> Any:
        raise NotImplementedError(
            f"{type(self).__name__} does not define to_tangent_aval: values of this type cannot be differentiated."
        )

    def to_ct_aval(self) -> Any:
        """The type of cotangents."""
        return self.to_tangent_aval()

    def to_cotangent_aval(self) -> Any:
        return self.to_ct_aval()

    def strip_weak_type(self) -> Any:
        return self

    def normalize(self) -> Any:
        """This type without what depends on how a value was made."""
        return self.strip_weak_type()

    def str_short(self, short_dtypes: bool = False, mesh_axis_types: bool = False) -> str:
        return str(self)

    @property
    def has_parts(self) -> bool:
        """Whether a value can be taken apart (`lower_val`)."""
        return True

    def lo_ty(self) -> list[Any]:
        """The types that values consist of."""
        return [self]

    def lower_val(self, value: Any) -> list[Any]:
        """The values that a value consists of."""
        return [value]

    def raise_val(self, *values: Any) -> Any:
        """The value that consists of these."""
        [value] = values
        return value

    def leading_axis_spec(self) -> Any:
        """Where the examples or slices of `scan` are in a value that holds several."""
        return 0

    def with_state(self, _value: Any) -> Any:
        """This type with what is known here of a value that changes."""
        return self

    def constant(self, trace: Any, value: Any) -> Any:
        """A value of this type as a constant of the program that `trace` writes."""
        return trace.new_const(value, self)

    def argument(self, trace: Any) -> Any:
        """An argument of this type of the program that `trace` writes."""
        return trace.new_variable(self)


class aval_method(NamedTuple):
    """A method that a type lends to the traced values of the type: an attribute of the type.

    >>> mpijax.experimental.hijax.aval_method(lambda x, y: x + y).fun(1, 2)
    3
    """

    fun: Any


class aval_property(NamedTuple):
    """A property that a type lends to the traced values of the type: an attribute of the type.

    >>> mpijax.experimental.hijax.aval_property(lambda x: 2 * x).fget(1)
    2
    """

    fget: Any


def lent(value: Any, name: str) -> Any:
    """An attribute of a traced value that its type has; raises AttributeError if it has none."""
    found = getattr(value.aval, name)
    if type(found) is aval_property:
        return found.fget(value)
    return MethodType(found.fun, value) if type(found) is aval_method else found


def advance(avals: Any, inner: Any) -> None:
    """Follow what a program inside of an operation does to operands that change: `inner` are its arguments' types."""
    if not AbstractValue.any_high:
        return
    for aval, after in zip(avals, inner, strict=True):
        state = getattr(aval, "mutable_qdd", None)
        if state is not None and hasattr(after, "mutable_qdd"):
            state.update(after.mutable_qdd.cur_val)


def to_override(owner: Any, method: str, purpose: str) -> NoReturn:
    """Raise NotImplementedError for a method that a subclass of the user's needs."""
    name = owner.__name__ if isinstance(owner, type) else type(owner).__name__
    raise NotImplementedError(f"{name} must define {method}: {purpose} needs it")


class MappingSpec:
    """Base of what says where the examples are in a value of a type of a library, in place of an array's axis."""


class HiPspec:
    """Base of the specs of such values in `in_specs` and `out_specs` of `shard_map`.

    >>> class Whole(mpijax.experimental.hijax.HiPspec):
    ...     def to_lo(self): return (mpijax.P(), mpijax.P())
    >>> Whole().to_lo()
    (P(), P())
    """

    def to_lo(self) -> tuple[Any, ...]:
        """A PartitionSpec for each value that a value consists of."""
        to_override(self, "to_lo", "shard_map")

    def to_tangent_spec(self) -> HiPspec:
        """The spec of tangents."""
        to_override(self, "to_tangent_spec", "the derivative of shard_map")

    def to_ct_spec(self) -> HiPspec:
        """The spec of cotangents."""
        to_override(self, "to_ct_spec", "the derivative of shard_map")
