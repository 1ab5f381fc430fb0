"""Parameters of operations with programs inside that count or mark operands, where each operand becomes several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any


def repeated(flags: Sequence[Any], widths: Sequence[int]) -> tuple[Any, ...]:
    """The flag of each operand for each of its parts."""
    return tuple(flag for flag, width in zip(flags, widths, strict=True) for _ in range(width))


def _jit(params: dict[str, Any], widths: Sequence[int]) -> dict[str, Any]:
    flags = params.get("donated_invars")
    return {"donated_invars": repeated(flags, widths)} if flags else {}


def _remat(params: dict[str, Any], widths: Sequence[int]) -> dict[str, Any]:
    cse = params["prevent_cse"]
    return {} if isinstance(cse, bool) else {"prevent_cse": repeated(cse, widths)}


def _scan(params: dict[str, Any], widths: Sequence[int]) -> dict[str, Any]:
    consts, carry = params["num_consts"], params["num_carry"]
    return {"num_consts": sum(widths[:consts]), "num_carry": sum(widths[consts : consts + carry])}


def _while(params: dict[str, Any], widths: Sequence[int]) -> dict[str, Any]:
    cond, body = params["cond_nconsts"], params["body_nconsts"]
    return {"cond_nconsts": sum(widths[:cond]), "body_nconsts": sum(widths[cond : cond + body])}


# By the keys of primitives: `(params, how many values each operand consists of) -> parameters that change`.
RULES: dict[str, Callable[[dict[str, Any], Sequence[int]], dict[str, Any]]] = {
    "jit": _jit,
    "remat2": _remat,
    "scan": _scan,
    "cond": lambda params, widths: {},
    "while": _while,
    "batched_while": _while,
}
