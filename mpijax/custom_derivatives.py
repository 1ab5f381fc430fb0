"""``mpijax.custom_derivatives``: derivatives given by the user, by JAX's names."""

from typing import Any

from mpijax import missing as _missing
from mpijax.core.trees import tree
from mpijax.transforms.custom_gradient import closure_convert, custom_gradient
from mpijax.transforms.custom_jvp import custom_jvp, custom_jvp_call_p
from mpijax.transforms.custom_vjp import CustomVJPPrimal, custom_vjp, custom_vjp_call_p, custom_vjp_primal_tree_values
from mpijax.transforms.linear_call import linear_call
from mpijax.transforms.zeros import Zero as SymbolicZero
from mpijax.transforms.zeros import instantiate

__all__ = [
    "CustomVJPPrimal",
    "SymbolicZero",
    "closure_convert",
    "custom_gradient",
    "custom_jvp",
    "custom_jvp_call_p",
    "custom_vjp",
    "custom_vjp_call_p",
    "custom_vjp_primal_tree_values",
    "linear_call",
    "zero_from_primal",
]


def zero_from_primal(val: Any, symbolic_zeros: bool = False) -> Any:
    """The zero tangent of `val` (a pytree): symbolic if asked for, else arrays.

    >>> mpijax.custom_derivatives.zero_from_primal(jnp.ones(3))
    Array([0., 0., 0.], dtype=float32)
    """
    zeros = tree.tree_map(SymbolicZero.of_primal, val)
    return zeros if symbolic_zeros else tree.tree_map(instantiate, zeros)


def __getattr__(name: str):
    raise _missing.error(__name__, name)
