"""Warnings that report the user's source line."""

from __future__ import annotations

import sys
import warnings

from mpijax.core.base.source import is_internal


def warn_user(message: str, category: type[Warning] = UserWarning) -> None:
    """Like `warnings.warn`, but reports the innermost line outside mpijax. A fixed ``stacklevel`` would be right for
    one path through the code only."""
    frame = sys._getframe(1)
    while is_internal(frame.f_code) and frame.f_back is not None:
        frame = frame.f_back
    seen = frame.f_globals
    warnings.warn_explicit(
        message,
        category,
        frame.f_code.co_filename,
        frame.f_lineno,
        seen.get("__name__", "<unknown>"),
        seen.setdefault("__warningregistry__", {}),
    )
