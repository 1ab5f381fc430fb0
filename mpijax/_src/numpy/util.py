"""Common dtypes of arguments, and checks of them."""

from mpijax.numpy.arguments import check_arraylike, check_arraylike_or_none
from mpijax.numpy.dtypes.promotion import (
    promote_args,
    promote_args_inexact,
    promote_args_numeric,
    promote_dtypes,
    promote_dtypes_complex,
    promote_dtypes_inexact,
    promote_dtypes_numeric,
)

__all__ = [
    "check_arraylike",
    "check_arraylike_or_none",
    "promote_args",
    "promote_args_inexact",
    "promote_args_numeric",
    "promote_dtypes",
    "promote_dtypes_complex",
    "promote_dtypes_inexact",
    "promote_dtypes_numeric",
]
