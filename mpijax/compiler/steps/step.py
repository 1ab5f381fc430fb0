"""The steps of a graph before its instructions are written: what each reads and writes, in values of the graph."""

from __future__ import annotations

import math
from functools import cached_property
from typing import TYPE_CHECKING, Any

from mpijax.compiler.fusion.expr import Load
from mpijax.compiler.fusion.kernel import Begin, Kernel
from mpijax.compiler.graph.nodes import Node, Value
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Communication, Exchange, Library, Native
from mpijax.core.types import effects as fx

if TYPE_CHECKING:
    from mpijax.compiler.steps.control import ControlBody


# Exchanges whose result MPI writes over the operand, if both are in one place.
_IN_PLACE = (Exchange.ALLREDUCE, Exchange.BCAST)


class Step:
    """What all steps answer."""

    @property
    def reads(self) -> list[Value]:
        raise NotImplementedError

    @property
    def writes(self) -> list[Value]:
        raise NotImplementedError

    @property
    def computes(self) -> bool:
        """Whether it neither communicates, nor may fail, nor calls Python."""
        return False

    @property
    def communicates(self) -> bool:
        return False

    @property
    def work(self) -> int:
        """Elements that it computes, counting each term of a sum."""
        return 0

    def replaceable(self, v: Value) -> list[Value]:
        """Operands whose memory `v` could take: read only at the element that is written."""
        return []


@dataclass(frozen=True, eq=False)
class KernelStep(Step):
    """A loop nest."""

    kernel: Kernel

    @cached_property
    def reads(self) -> list[Value]:
        return list(self.kernel.reads().values())

    @cached_property
    def writes(self) -> list[Value]:
        return list(self.kernel.writes().values())

    @property
    def computes(self) -> bool:
        return True

    @property
    def work(self) -> int:
        return math.prod(v.size for v in self.kernel.variables)

    def replaceable(self, v: Value) -> list[Value]:
        kernel = self.kernel
        if kernel.ordered or kernel.cumulate is not None:
            return []
        inner = sorted(kernel.inner, key=lambda s: s.phase)  # in the order in which they run
        stores = [*inner, *kernel.outer]
        own = [n for n, s in enumerate(inner if kernel.reduces else stores) if s.value is v]
        if len(own) != 1 or any(s.value is not v for s in stores if s.guard is not None):
            return []
        if kernel.phases > 1 and stores[own[0]].phase + 1 < kernel.phases:  # a later pass may read the row again
            return []
        key = stores[own[0]].position.key
        # Elements are reduced, then stored one result after the other: what is not read until then comes too late.
        before, after = stores[: own[0] + 1], stores[own[0] + 1 :]
        late = kernel.loaded_by([s.expr for s in after]) - kernel.surely_loaded_before(after[0]) if after else set()
        read = kernel.loaded_by([*(r.expr for r in kernel.reduces), *(s.expr for s in before)]) - late
        good: dict[int, Value] = {}
        bad: set[int] = set()
        for e in kernel.expressions:
            if isinstance(e, Load):
                u, position = e.value, e.position
                if position.key == key and u.element.itemsize == v.element.itemsize:
                    good[id(u)] = u
                else:
                    bad.add(id(u))
        return [u for k, u in good.items() if k not in bad and k in read]


@dataclass(frozen=True, eq=False)
class BeginStep(Step):
    """An array starts as a copy of another one, or as nothing, before parts of it are written."""

    begin: Begin

    @property
    def reads(self) -> list[Value]:
        return [self.begin.base] if self.begin.base is not None else []

    @property
    def writes(self) -> list[Value]:
        return [self.begin.target]

    @property
    def computes(self) -> bool:
        return True

    def replaceable(self, v: Value) -> list[Value]:
        return self.reads


@dataclass(frozen=True, eq=False)
class NodeStep(Step):
    """An operation that is one instruction. operands: those in memory. posted: of a send, it does not wait."""

    node: Node
    operands: list[Value]
    posted: bool = False

    @property
    def reads(self) -> list[Value]:
        return self.operands

    @property
    def writes(self) -> list[Value]:
        return self.node.outputs

    @property
    def params(self) -> dict[str, Any]:
        return self.node.params

    @property
    def exchange(self) -> Exchange | None:
        """What it exchanges with other ranks; None for all others."""
        lower = self.node.primitive.lower
        return lower.exchange if isinstance(lower, Communication) else None

    @property
    def communicates(self) -> bool:
        return self.exchange is not None

    @property
    def computes(self) -> bool:
        return isinstance(self.node.primitive.lower, Library)

    @property
    def work(self) -> int:
        return self.node.outputs[0].size * max(v.shape[-1] for v in self.node.inputs) if self.computes else 0

    def replaceable(self, v: Value) -> list[Value]:
        lower, node = self.node.primitive.lower, self.node
        if self.exchange in _IN_PLACE:
            return self.operands
        if not isinstance(lower, Native):
            return []
        free = [] if lower.in_place is None else lower.in_place([u.aval for u in node.inputs], node.params)
        pairs = [(node.inputs[i], node.outputs[o]) for i, o in (*lower.aliased(node.params), *free)]
        return [u for u, w in pairs if w is v and node.inputs.count(u) == 1]

    @property
    def sent(self) -> list[Value]:
        """Of an exchange in two halves: what must stay as it is until the wait."""
        return self.operands

    @property
    def received(self) -> list[Value]:
        """Of an exchange in two halves: what is written until the wait."""
        return self.node.outputs

    @property
    def unpacked(self) -> list[Value]:
        """What is made of that after the wait."""
        return []


@dataclass(frozen=True, eq=False)
class CombinedStep(Step):
    """Reductions over ranks done as one: operands are packed one behind the other, reduced there, and unpacked."""

    nodes: list[Node]
    packed: Value

    @property
    def reads(self) -> list[Value]:
        return [n.inputs[0] for n in self.nodes]

    @property
    def writes(self) -> list[Value]:
        return [*self.unpacked, self.packed]

    @property
    def communicates(self) -> bool:
        return True

    @property
    def sent(self) -> list[Value]:
        return [self.packed]

    @property
    def received(self) -> list[Value]:
        return [self.packed]

    @property
    def unpacked(self) -> list[Value]:
        return [n.outputs[0] for n in self.nodes]


@dataclass(frozen=True, eq=False)
class StartStep(Step):
    """The first half of an exchange: it starts, and later steps run beside it."""

    whole: NodeStep | CombinedStep

    @property
    def reads(self) -> list[Value]:
        return self.whole.reads

    @property
    def writes(self) -> list[Value]:
        return self.whole.received

    @property
    def communicates(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class FinishStep(Step):
    """The second half of an exchange: it is waited for."""

    whole: NodeStep | CombinedStep

    @property
    def reads(self) -> list[Value]:
        return [*self.whole.sent, *self.whole.received]

    @property
    def writes(self) -> list[Value]:
        return [*self.whole.unpacked]

    @property
    def communicates(self) -> bool:
        return True


@dataclass(frozen=True, eq=False)
class ControlStep(Step):
    """A loop or branch in a list of steps. scratch: what its bodies' temporaries lie in."""

    node: Node
    bodies: list[ControlBody]
    scratch: Value
    carries: int

    @property
    def reads(self) -> list[Value]:
        return self.node.inputs

    @property
    def writes(self) -> list[Value]:
        return [*self.node.outputs, self.scratch] if self.scratch.nbytes else self.node.outputs

    @cached_property
    def computes(self) -> bool:
        return not fx.pins(self.node.effects) and all(s.computes for body in self.bodies for s in body.steps)

    @cached_property
    def communicates(self) -> bool:
        return bool(self.node.effects) or any(s.communicates for body in self.bodies for s in body.steps)

    @property
    def work(self) -> int:
        return self.node.params.get("length", 1) * sum(s.work for body in self.bodies for s in body.steps)

    def replaceable(self, v: Value) -> list[Value]:
        """The first value of a carry, whose memory the loop may take over if nothing else in it reads that."""
        if v.producer is not self.node or v.position >= self.carries:
            return []
        first = self.node.inputs[v.position]
        read = [*self.node.inputs, *(c for region in self.node.regions for c in region.captures)]
        return [first] if sum(u is first for u in read) == 1 else []
