"""``jax.experimental.hijax``: types that libraries define, and operations on their values.

A value of such a type consists of values of other types. Programs are traced, differentiated and vectorized with the
values as a whole, by rules of the library; the compiler gets what they consist of.
"""

from __future__ import annotations

from mpijax import missing as _missing
from mpijax.core.tracing.refs import AbstractRef
from mpijax.core.tracing.refs import RefView as TransformedRef
from mpijax.core.types.abstract import AbstractValue, HiPspec, aval_method, aval_property
from mpijax.core.types.avals import ShapedArray
from mpijax.experimental.hijax.effect_types import control_flow_allowed_effects
from mpijax.experimental.hijax.mutable import AvalMutableQDD, AvalQDD, MutableHiType
from mpijax.experimental.hijax.primitives import HiPrimitive
from mpijax.experimental.hijax.types import HiType, register_hitype
from mpijax.experimental.hijax.vjp_primitives import VJPHiPrimitive
from mpijax.transforms.transpose import is_undefined_primal
from mpijax.transforms.zeros import Zero
from mpijax.transforms.zeros import instantiate as instantiate_zeros

__all__ = [
    "AbstractRef", "AbstractValue", "AvalMutableQDD", "AvalQDD", "HiPrimitive", "HiPspec", "HiType", "MutableHiType",
    "ShapedArray", "TransformedRef", "VJPHiPrimitive", "Zero", "aval_method", "aval_property",
    "control_flow_allowed_effects", "instantiate_zeros", "is_undefined_primal", "register_hitype",
]  # fmt: skip


def __getattr__(name: str):
    raise _missing.error(__name__, name)
