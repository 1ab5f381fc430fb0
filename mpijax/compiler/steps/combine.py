"""Several small reductions over the same ranks as one message.

A gradient is many small arrays, and what a message costs is mostly its latency. Reductions wait for the next
ones, as long as nobody reads their results and no other communication comes in between, so the order of
communication stays that of the program.

All ranks must combine the same reductions. Where ranks have parts of different sizes, one rank may read a result that
another one does not need, so nothing is combined there.
"""

from __future__ import annotations

from typing import Any

from mpijax.compiler.graph.nodes import Node, Value, ValueKind
from mpijax.compiler.steps.step import CombinedStep, NodeStep, Step
from mpijax.core.rules.lowering import Exchange
from mpijax.core.types.avals import ShapedArray

# Messages of more bytes than this are worth sending on their own, without a copy.
SMALL = 1 << 16
# Largest combined message.
TOTAL = 1 << 20


def _key(step: Step) -> Any:
    """Reductions with equal keys can travel together; None for anything else."""
    if not isinstance(step, NodeStep) or step.exchange is not Exchange.ALLREDUCE:
        return None
    lower = step.node.primitive.lower
    if lower.on_communicator or step.operands[0].nbytes > SMALL:
        return None
    over = step.params["mesh"], step.params["names"], step.params.get("axis_index_groups")
    return lower.operation, *over, step.operands[0].element


def combine(steps: list[Step]) -> list[Step]:
    """The steps with runs of small reductions combined."""
    out: list[Step] = []
    waiting: list[NodeStep] = []
    waiting_key: Any = None
    pending: set[int] = set()
    size = 0

    def flush() -> None:
        nonlocal waiting, waiting_key, size
        if waiting:
            out.append(waiting[0] if len(waiting) == 1 else _combined([s.node for s in waiting]))
        waiting, waiting_key, size = [], None, 0
        pending.clear()

    for step in steps:
        key = _key(step)
        blocked = any(id(v) in pending for v in step.reads)
        joins = key is not None and key == waiting_key and not blocked and size + step.reads[0].nbytes <= TOTAL
        if waiting and not joins and (blocked or step.communicates):
            flush()
        if key is None:
            out.append(step)
            continue
        assert isinstance(step, NodeStep)
        waiting.append(step)
        waiting_key = key
        size += step.reads[0].nbytes
        pending.add(id(step.writes[0]))
    flush()
    return out


def _combined(nodes: list[Node]) -> CombinedStep:
    total = sum(n.inputs[0].size for n in nodes)
    aval = ShapedArray((total,), nodes[0].inputs[0].element)
    return CombinedStep(nodes, Value(aval, ValueKind.PACKED))
