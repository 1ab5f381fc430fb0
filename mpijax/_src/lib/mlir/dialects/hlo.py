"""Elementwise operations of StableHLO, for lowering rules written for JAX.

mpijax calls a lowering rule with traced arrays. So `hlo.AddOp(x, y).result` and `hlo.add(x, y)` are `lax.add(x, y)`.
The result of the rule is compiled like any other function. Operations that take types, attributes or regions are
missing.
"""

from __future__ import annotations

from typing import Any

from mpijax import lax

# The class, the function and the function of `lax` of each operation.
_OPERATIONS = """
AbsOp abs abs, AddOp add add, AndOp and_ bitwise_and, Atan2Op atan2 atan2, CbrtOp cbrt cbrt, CeilOp ceil ceil,
ClampOp clamp clamp, ClzOp count_leading_zeros clz, ComplexOp complex complex, CosineOp cosine cos, DivOp divide div,
ExpOp exponential exp, Expm1Op exponential_minus_one expm1, FloorOp floor floor, ImagOp imag imag,
IsFiniteOp is_finite is_finite, Log1pOp log_plus_one log1p, LogOp log log, LogisticOp logistic logistic,
MaxOp maximum max, MinOp minimum min, MulOp multiply mul, NegOp negate neg, NotOp not_ bitwise_not,
OrOp or_ bitwise_or, PopulationCountOp popcnt population_count, PowOp power pow, RealOp real real, RemOp remainder rem,
RsqrtOp rsqrt rsqrt, SelectOp select select, ShiftLeftOp shift_left shift_left,
ShiftRightArithmeticOp shift_right_arithmetic shift_right_arithmetic,
ShiftRightLogicalOp shift_right_logical shift_right_logical, SignOp sign sign, SineOp sine sin, SqrtOp sqrt sqrt,
SubtractOp subtract sub, TanOp tan tan, TanhOp tanh tanh, XorOp xor bitwise_xor
"""
_TABLE = [row.split() for row in _OPERATIONS.split(",")]
_CLASSES = {op: fun for op, _, fun in _TABLE}
_FUNCTIONS = {name: fun for _, name, fun in _TABLE}

__all__ = [*_CLASSES, *_FUNCTIONS]  # noqa: PLE0604


class HloOperation:
    """An operation of the rule, with its result. It may be an operand itself."""

    function: str

    def __init__(self, *operands: Any):
        self.result = _apply(self.function, operands)

    @property
    def results(self) -> list[Any]:
        """The results: one."""
        return [self.result]


def _apply(function: str, operands: tuple[Any, ...]) -> Any:
    return getattr(lax, function)(*(x.result if isinstance(x, HloOperation) else x for x in operands))


def __getattr__(name: str) -> Any:
    if name in _CLASSES:
        made: Any = type(name, (HloOperation,), {"function": _CLASSES[name], "__module__": __name__})
    elif name in _FUNCTIONS:
        function = _FUNCTIONS[name]

        def made(*operands: Any) -> Any:
            return _apply(function, operands)
    else:
        raise AttributeError(
            f"module {__name__!r} has no {name!r}. It has the elementwise operations of StableHLO without attributes."
        )
    globals()[name] = made
    return made
