"""Parameters of operations with programs inside that count or mark operands, where each operand becomes several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from mpijax.experimental.hijax.types import HiType


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


def _stacked(aval: Any, length: int) -> Any:
    """The type of `length` values, or that of one if the library does not say: values are put together alike."""
    if aval.is_high and type(aval).inc_rank is HiType.inc_rank:
        return aval
    return aval.inc_rank(length, aval.leading_axis_spec())


def _scan_results(params: dict[str, Any]) -> list[Any]:
    count, avals = params["num_carry"], params["jaxpr"].out_avals
    return [*avals[:count], *(_stacked(a, params["length"]) for a in avals[count:])]


def _nothing(params: dict[str, Any], widths: Sequence[int]) -> dict[str, Any]:
    return {}


class Call(NamedTuple):
    """How an operation with programs inside is lowered.

    changed: `(params, how many values each operand consists of) -> parameters that change`, but for the programs.
    results: `(params) -> types of the results`.
    """

    changed: Callable[[dict[str, Any], Sequence[int]], dict[str, Any]]
    results: Callable[[dict[str, Any]], Sequence[Any]]


# By the keys of primitives.
CALLS = {
    "jit": Call(_jit, lambda params: params["jaxpr"].out_avals),
    "remat2": Call(_remat, lambda params: params["jaxpr"].out_avals),
    "scan": Call(_scan, _scan_results),
    "cond": Call(_nothing, lambda params: params["branches"][0].out_avals),
    "while": Call(_while, lambda params: params["body_jaxpr"].out_avals),
    "batched_while": Call(_while, lambda params: params["body_jaxpr"].out_avals),
}
