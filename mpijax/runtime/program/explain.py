"""Explains, by the user's lines, what a compiled program sends and holds: as data, and as a table."""

from __future__ import annotations

import linecache
from typing import Any

from mpijax.compiler.steps.plan import Gathered, ProgramPlan
from mpijax.core.base.source import Source, name_stack_of
from mpijax.core.base.units import amount
from mpijax.runtime.program.traffic import Sent, sent


def explanation(plan: ProgramPlan) -> dict[str, Any]:
    """This rank's messages in one run of a program, their reasons, the arrays that are gathered, and the memory needed.

    The result is plain data. `lines`: one entry for each communication. `whole`: gathered arrays. Sizes are in bytes.
    """
    memory = plan.memory()
    messages = sent(plan)
    return {
        "sent": sum(s.total for s in messages),
        "memory": memory["argument"] + memory["output"] - memory["alias"] + memory["temp"],
        "lines": [_line(s) for s in messages],
        "whole": [_whole(g) for g in plan.gathered],
    }


def _place(source: Source) -> dict[str, Any]:
    code = linecache.getline(source.file, source.line).strip() if source.file else ""
    stack = str(source.name_stack) if source.name_stack.has_scope else ""
    return source._asdict() | {"name_stack": stack, "code": code}


def _line(s: Sent) -> dict[str, Any]:
    return _place(s.source) | {
        "operation": s.label, "times": s.times, "times_known": s.known, "bytes_each": s.nbytes, "bytes": s.total,
        "memory": s.received, "why": s.why or "the program communicates here",
    }  # fmt: skip


def _whole(g: Gathered) -> dict[str, Any]:
    return _place(g.source) | {"type": g.type, "bytes": g.nbytes, "operation": g.operation, "avoid": _avoid(g)}


def _avoid(g: Gathered) -> str:
    """The annotation that keeps the array split."""
    if not g.instead:
        return (
            "compute this step in a jax.shard_map, or on a smaller array: no sharding of its operand avoids the message"
        )
    if g.argument >= 0:
        return f"shard argument {g.argument} (leaves count from 0) as {g.instead}, with in_shardings or jax.device_put"
    return (
        f"shard operand {g.operand} of {g.operation} as {g.instead}: jax.lax.with_sharding_constraint(x, "
        f"NamedSharding(mesh, {g.instead}))"
    )


def explained(plan: ProgramPlan) -> str:
    """`explanation` as a table."""
    return text_of(explanation(plan))


def text_of(found: dict[str, Any]) -> str:
    """An `explanation` as a table: a row for each communication; below it gathered arrays, and totals.

    The column `memory` has the bytes that this rank receives.
    """
    rows = [("line", "operation", "times", "bytes each", "bytes", "memory", "why")]
    rows += [
        (_at(x), x["operation"], str(x["times"]) + " per iteration" * (not x["times_known"]), f"{x['bytes_each']:,.0f}",
         f"{x['bytes']:,.0f}", f"{x['memory']:,}", x["why"])
        for x in found["lines"]
    ]  # fmt: skip
    widths = [max(len(r[k]) for r in rows) for k in range(len(rows[0]))]
    lines = ["  ".join(map(_put, r, widths, range(len(r)))).rstrip() for r in rows]
    text = "\n".join(lines) if found["lines"] else "sends nothing"
    for x in found["whole"]:
        text += f"\ngathered: {x['type']} ({amount(x['bytes'])} on every rank) for {x['operation']} at {_at(x)}"
        text += f"\n  to avoid it, {x['avoid']}"
    return f"{text}\nsent by this rank: {found['sent']:,.0f} bytes; memory: {found['memory']:,} bytes\n"


def _at(x: dict[str, Any]) -> str:
    """The source line; "-" for the communication of results, which has none."""
    if not x["file"]:
        return "-"
    return str(Source(x["file"], x["line"], x["function"], name_stack_of(x["name_stack"])))


def _put(text: str, width: int, column: int) -> str:
    return text.rjust(width) if 2 <= column <= 5 else text.ljust(width)
