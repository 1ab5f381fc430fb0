"""Types that libraries define, with JAX's names. Libraries can declare such types, but programs contain only arrays.

Libraries declare such types besides the types that they use by default (for example flax.nnx's variables). A
declaration has no effect. An operation on a value of such a type raises NotImplementedError, which says what to use
instead.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from mpijax.core.avals import ShapedArray
from mpijax.core.refs import AbstractRef
from mpijax.core.refs import RefView as TransformedRef
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero, instantiate

__all__ = [
    "AbstractRef", "AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrimitive", "HiPspec", "HiType", "MutableHiType",
    "ShapedArray", "TransformedRef", "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
    "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal", "register_hitype",
]  # fmt: skip

instantiate_zeros = instantiate


def _unavailable(what: str) -> NoReturn:
    raise NotImplementedError(
        f"{what}: values of types that libraries define are not traced here. Use pytrees of arrays, or mutable array "
        "references (mpijax.new_ref)."
    )


class AbstractValue:
    """Base of types."""


class HiType(AbstractValue):
    """Base of types that a library defines."""


class MutableHiType(HiType):
    """Base of types of mutable values."""


class HiPspec:
    """Base of shardings of values of such types."""


class AvalQDD:
    """A type together with properties that depend on the place in the program."""

    def __init__(self, aval: Any, qdd: Any):
        self.aval = aval
        self.qdd = qdd


class AvalMutableQDD(AvalQDD):
    """The same for a value that changes."""


class HiPrimitive:
    """Base of operations on values of such types."""

    multiple_results = False

    def __init__(self, name: str):
        self.name = name

    def bind(self, *_args: Any, **_params: Any) -> NoReturn:
        _unavailable(self.name)


class VJPHiPrimitive:
    """Base of operations with their own derivative; in mpijax, use `mpijax.custom_vjp` instead."""

    def __call__(self, *_args: Any) -> NoReturn:
        _unavailable(type(self).__name__)


class aval_method:
    """A method that a type gives to its values."""

    def __init__(self, fun: Callable):
        self.fun = fun


class aval_property:
    """A property that a type gives to its values."""

    def __init__(self, fget: Callable):
        self.fget = fget


class _EffectTypes(set):
    """Types of effects."""

    def add_type(self, effect_type: type) -> None:
        """Add one."""
        self.add(effect_type)

    def contains(self, effect: Any) -> bool:
        """Whether the effect is of one of the types."""
        return isinstance(effect, tuple(self))


# Every effect may occur in loops and branches here.
control_flow_allowed_effects = _EffectTypes()


def register_hitype(val_cls: type, typeof_fn: Callable) -> None:
    """Declare the type of the values of a class."""
    del val_cls, typeof_fn
