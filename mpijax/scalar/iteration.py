"""Data-dependent loops, for series and continued fractions.

The builder itself never branches: a loop is a helper function on whole vectors, which runs until all lanes have
finished. Finished lanes keep their values, so a result never depends on other lanes.
"""

from __future__ import annotations

from collections.abc import Callable

from mpijax.scalar.builder import Builder
from mpijax.scalar.expr import Real
from mpijax.scalar.types import BOOL, Scalar

Step = Callable[..., tuple[list[Real], Real]]


def iterate(name: str, step: Step, limit: int, active: Real, state: list[Real], *fixed: Real) -> list[Real]:
    """The state after as many steps as each lane needs.

    Args:
      name: of the helper function; unique for each `step`.
      step: step(*state, *fixed) -> (next state, whether to continue); the next state is kept in lanes that stop.
      limit: maximal number of steps.
      active: lanes that take any steps.
      state, fixed: values that change, and values that do not; all of one dtype.
    """
    b, values = active.b, [*state, *fixed]
    t, mask = b.type(state[0].dtype), b.vector("i1")
    label = f"mpijax.{name}.{b.lanes}.{t.strip('<>').split()[-1]}"
    result = _structure(t, len(state))
    if label not in b.function.helpers:
        b.function.helpers[label] = ""  # reserves the position before its own helpers
        formals = ", ".join([f"{mask} %on", *(f"{t} %v{i}" for i in range(len(values)))])
        b.function.helpers[label] = "\n".join([
            f"define internal {result} @{label}({formals}) noinline {{",
            *_body(Builder(b.lanes, b.function), step, limit, state, fixed),
            f"  ret {result} %result", "}"])  # fmt: skip
    actual = ", ".join([f"{mask} {active.s.ir}", *(f"{t} {v.s.ir}" for v in values)])
    returned = b.emit(f"call {result} @{label}({actual})")
    return [Real(b, Scalar(v.dtype, b.emit(f"extractvalue {result} {returned}, {i}"))) for i, v in enumerate(state)]


def _body(b: Builder, step: Step, limit: int, state: list[Real], fixed: tuple[Real, ...]) -> list[str]:
    """Lines of the function: a block `turn` that branches to itself, and its final values combined as %result."""
    t, mask = b.type(state[0].dtype), b.vector("i1")
    result = _structure(t, len(state))
    old = [Real(b, Scalar(v.dtype, f"%s{i}")) for i, v in enumerate(state)]
    same = [Real(b, Scalar(v.dtype, f"%v{i}")) for i, v in enumerate(fixed, len(state))]
    active = Scalar(BOOL, "%active")
    new, more = step(*old, *same)
    kept = [b.select(active, n.s, o.s) for n, o in zip(new, old, strict=True)]
    still = b.and_(active, more.s)
    some = b.any_lane(still)
    phis = [f"  %s{i} = phi {t} [%v{i}, %entry], [{k.ir}, %turn]" for i, k in enumerate(kept)]
    lines = [
        "entry:", "  br label %turn",
        "turn:", f"  %active = phi {mask} [%on, %entry], [{still.ir}, %turn]",
        "  %count = phi i32 [0, %entry], [%next, %turn]", *phis, *b.lines,
        "  %next = add i32 %count, 1", f"  %below = icmp ult i32 %next, {limit}", f"  %again = and i1 %below, {some}",
        "  br i1 %again, label %turn, label %done", "done:",
    ]  # fmt: skip
    value = "undef"
    for i, k in enumerate(kept):
        name = "%result" if i + 1 == len(kept) else f"%r{i}"
        lines.append(f"  {name} = insertvalue {result} {value}, {t} {k.ir}, {i}")
        value = name
    return lines


def _structure(t: str, size: int) -> str:
    return "{" + ", ".join([t] * size) + "}"
