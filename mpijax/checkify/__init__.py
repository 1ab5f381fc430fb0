"""Checks in compiled programs, with errors as values. Public as `mpijax.experimental.checkify`."""

from mpijax.checkify import calls as _calls  # noqa: F401  (rules)
from mpijax.checkify.check import check, check_error, debug_check
from mpijax.checkify.errors import NO_ERROR as init_error
from mpijax.checkify.errors import Error, ErrorCategory, JaxRuntimeError
from mpijax.checkify.interpreter import (
    all_checks,
    automatic_checks,
    checkify,
    div_checks,
    float_checks,
    index_checks,
    nan_checks,
    user_checks,
)

__all__ = [
    "Error", "ErrorCategory", "JaxRuntimeError", "all_checks", "automatic_checks", "check", "check_error", "checkify",
    "debug_check", "div_checks", "float_checks", "index_checks", "init_error", "nan_checks", "user_checks",
]  # fmt: skip
