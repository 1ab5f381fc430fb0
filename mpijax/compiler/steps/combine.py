"""Several small reductions over the same ranks as one message.

A gradient is many small arrays, and what a message costs is mostly its latency. Reductions wait for the next
ones, as long as nobody reads their results and no other communication comes in between, so the order of
communication stays that of the program.

All ranks must combine the same reductions. Where ranks have parts of different sizes, one rank may read a result that
another one does not need, so nothing is combined there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from mpijax.compiler.graph.nodes import Node, Value
from mpijax.core.avals import ShapedArray
from mpijax.core.lowering import Communication, Exchange

# Messages of more bytes than this are worth sending on their own, without a copy.
SMALL = 1 << 16
# Largest combined message.
TOTAL = 1 << 20


@dataclass
class Combined:
    """Reductions done as one: operands are packed one behind the other, results unpacked."""

    nodes: list[Node]
    packed: Value
    reduced: Value

    @property
    def inputs(self) -> list[Value]:
        return [n.inputs[0] for n in self.nodes]

    @property
    def outputs(self) -> list[Value]:
        return [n.outputs[0] for n in self.nodes]


def _key(kind: str, step: Any):
    """Reductions with equal keys can travel together; None for anything else."""
    lower = step.primitive.lower if kind == "node" else None
    if not isinstance(lower, Communication) or lower.on_communicator:
        return None
    if lower.exchange is not Exchange.ALLREDUCE or step.inputs[0].nbytes > SMALL:
        return None
    over = step.params["mesh"], step.params["names"], step.params.get("axis_index_groups")
    return lower.operation, *over, step.inputs[0].element


def _communicates(kind: str, step: Any) -> bool:
    if kind == "control":
        return bool(step.node.effects) or any(_communicates(*s) for body in step.bodies for s in body.steps)
    if kind == "node":
        return isinstance(step.primitive.lower, Communication)
    return kind in ("combined", "start", "wait", "post")


def combine(steps: list[tuple[str, Any]], reads) -> list[tuple[str, Any]]:
    """The steps with runs of small reductions combined. `reads(kind, step)` lists the values a step reads."""
    out: list[tuple[str, Any]] = []
    waiting: list[Node] = []
    waiting_key: Any = None
    pending: set[int] = set()
    size = 0

    def flush() -> None:
        nonlocal waiting, waiting_key, size
        if len(waiting) == 1:
            out.append(("node", waiting[0]))
        elif waiting:
            out.append(("combined", _combined(waiting)))
        waiting, waiting_key, size = [], None, 0
        pending.clear()

    for kind, step in steps:
        key = _key(kind, step)
        blocked = any(id(v) in pending for v in reads(kind, step))
        joins = key is not None and key == waiting_key and not blocked and size + step.inputs[0].nbytes <= TOTAL
        if waiting and not joins and (blocked or _communicates(kind, step)):
            flush()
        if key is None:
            out.append((kind, step))
            continue
        waiting.append(step)
        waiting_key = key
        size += step.inputs[0].nbytes
        pending.add(id(step.outputs[0]))
    flush()
    return out


def _combined(nodes: list[Node]) -> Combined:
    total = sum(n.inputs[0].size for n in nodes)
    aval = ShapedArray((total,), nodes[0].inputs[0].element)
    return Combined(nodes, Value(aval, "packed"), Value(aval, "reduced"))
