"""What a compiled program sends and holds, by the user's lines."""

from __future__ import annotations

from mpijax.compiler.steps.plan import Plan
from mpijax.runtime.program.traffic import Sent, sent


def explained(plan: Plan) -> str:
    """A table: for each line of the user's program what this rank sends, how often, and how many bytes.

    Below it stand the arrays that operations made whole on every rank, and the memory of one run.
    """
    messages = sent(plan)
    total = sum(s.total for s in messages)
    rows = [("line", "operation", "times", "bytes each", "bytes")]
    rows += [(str(s.source), s.label, _times(s), f"{s.nbytes:,.0f}", f"{s.total:,.0f}") for s in messages]
    widths = [max(len(r[k]) for r in rows) for k in range(5)]
    lines = ["  ".join(_put(x, w, k) for k, (x, w) in enumerate(zip(r, widths, strict=True))).rstrip() for r in rows]
    text = "\n".join(lines) if messages else "sends nothing"
    for g in plan.gathered:
        text += f"\nmade whole: {g.type} ({g.nbytes:,} bytes) for {g.operation} at {g.source}"
    memory = plan.memory()
    held = memory["argument"] + memory["output"] - memory["alias"] + memory["temp"]
    return f"{text}\nsent by this rank: {total:,.0f} bytes; memory: {held:,} bytes\n"


def _times(s: Sent) -> str:
    return str(s.times) if s.known else f"{s.times} a turn"


def _put(text: str, width: int, column: int) -> str:
    return text.ljust(width) if column < 2 else text.rjust(width)
