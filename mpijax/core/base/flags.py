"""Reads options from the command line, as `--jax_enable_x64=true`."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any


def given(arguments: Sequence[str], options: Mapping[str, Any]) -> dict[str, str]:
    """The options on the command line, each with its text.

    Forms are ``--jax_name=value``, ``--jax_name value``, and for boolean options ``--jax_name`` and ``--nojax_name``.
    Everything else is ignored.
    """
    found: dict[str, str] = {}
    for i, argument in enumerate(arguments):
        name, has_value, value = argument.lstrip("-").partition("=")
        if not argument.startswith("-"):
            continue
        if name.removeprefix("no") in options and name.startswith("no"):
            found[name.removeprefix("no")] = "false"
        elif name in options and has_value:
            found[name] = value
        elif name in options and isinstance(options[name].default, bool):
            found[name] = "true"
        elif name in options and i + 1 < len(arguments):
            found[name] = arguments[i + 1]
    return found


def tell_absl(options: Mapping[str, Any]) -> None:
    """If the program uses absl, define the options as absl flags, so that absl accepts them."""
    flags = sys.modules.get("absl.flags")
    if flags is None:
        return
    for name, option in options.items():
        if name.startswith("jax_") and name not in flags.FLAGS:
            if isinstance(option.default, bool):
                flags.DEFINE_bool(name, option.default, option.__doc__)
            else:
                flags.DEFINE_string(name, None, option.__doc__)
