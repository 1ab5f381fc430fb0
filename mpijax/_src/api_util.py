"""Between functions of pytrees and functions of flat lists."""

import inspect
from collections.abc import Sequence

from mpijax.api_util import *  # noqa: F403

__all__ = ["infer_argnums_and_argnames"]


def infer_argnums_and_argnames(
    sig: inspect.Signature, argnums: int | Sequence[int] | None, argnames: str | Sequence[str] | None
) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Positions and names of the same arguments; the signature tells the one of them that is None.

    Only arguments that have both a position and a name are completed.
    """
    nums = (argnums,) if isinstance(argnums, int) else tuple(argnums or ())
    names = (argnames,) if isinstance(argnames, str) else tuple(argnames or ())
    both = inspect.Parameter.POSITIONAL_OR_KEYWORD
    known = [(i, p.name) for i, p in enumerate(sig.parameters.values()) if p.kind is both]
    if argnums is None:
        nums = tuple(i for i, name in known if name in names)
    elif argnames is None:
        names = tuple(name for i, name in known if i in nums)
    return nums, names
