"""Contractions in a given order, with any product of two arrays."""

from mpijax.numpy.linear_algebra.contraction import contract as _einsum
from mpijax.numpy.linear_algebra.contraction import path_of_any_sizes as _default_poly_einsum_handler

# {the type of a size that is not a number: the function that finds an order}; other types have the one above.
_poly_einsum_handlers: dict = {}

__all__ = ["_default_poly_einsum_handler", "_einsum", "_poly_einsum_handlers"]
