"""Which values get memory or a loop of their own, and which are computed where they are read."""

from __future__ import annotations

from mpijax.compiler.fusion.gemm import block_in, product_operand, view_base
from mpijax.compiler.graph.nodes import Graph, Node, Value
from mpijax.compiler.graph.products import View
from mpijax.compiler.graph.views import is_view, keeps_layout, view_of
from mpijax.core.lowering import (
    Communication,
    Cumulative,
    Elementwise,
    Exchange,
    Library,
    Native,
    Structural,
    ViewKind,
    Writes,
)

# Above this cost a value read by several others is computed once.
RECOMPUTE_BELOW = 4


def node_cost(node: Node) -> int:
    """What evaluating one element again costs, inputs not counted."""
    lower = node.primitive.lower
    return lower.cost if isinstance(lower, (Elementwise, Structural)) else 0


# Kernels are cut where more work than this is done for one element, in units of an addition. Larger ones are slower:
# values and constants leave the registers (150 sines of 2 million numbers took 420 ms at 480, 160 ms at 80), and the
# machine code takes longer to make, more than in proportion. Smaller ones are more often alike (`compiler.alike`).
MAX_WORK = 80
# What an operation counts at most: the largest are functions with loops of their own.
MAX_WORK_OF_ONE = 60


def work_of(node: Node) -> int:
    """What an operation counts in `MAX_WORK`; index maps too, since they make expressions deeper."""
    return min(max(node_cost(node), 1), MAX_WORK_OF_ONE)


# Values made of parts that one expression may read; what reads more gets memory on the way.
MAX_PIECES = 24
# How much larger than a part at a fixed place an array must be for the part to have memory before it is written.
PART = 8
# Exchanges that read their operand only, and are not packed with others.
_FROM_ONE_PLACE = (Exchange.PERMUTE, Exchange.ALLGATHER, Exchange.ALLTOALL, Exchange.REDUCE_SCATTER)


class Roots:
    """The set of values computed by loops of their own (`values`), decided once per graph.

    refused: operations made of parts that must be done part by part (see `compiler.fusion.updates`).
    stored: values that must have memory. donated: arguments that results may overwrite.
    """

    def __init__(
        self,
        graph: Graph,
        donated: tuple[bool, ...] = (),
        refused: frozenset[int] = frozenset(),
        stored: frozenset[int] = frozenset(),
    ):
        self.graph = graph
        self.donated = donated
        self.ids: set[int] = set(stored)
        # How many operations made of parts are evaluated where a value is.
        self.pieces: dict[int, int] = {}
        self.inline_cost: dict[int, tuple[int, int]] = {}
        # The work for one element of a value where operands that have no loops of their own are computed again.
        self.work: dict[int, int] = {}
        self._sent: dict[tuple[int, int], View | None] = {}
        self._bases: set[int] = set()
        self.order = {id(node): k for k, node in enumerate(graph.nodes)}
        outputs = {id(v) for v in graph.outputs}
        for node in graph.nodes:
            if isinstance(node.primitive.lower, Structural) and node.primitive.lower.in_place:
                self._store_parts(node, outputs)
            if made_of_parts(node):
                node.kind = "update" if id(node) in refused or not self._as_expression(node, outputs) else "map"
            work = self._work(node)
            if work > MAX_WORK and (before := self._only_operand(node)) is not None:
                self._store(before)
                work = self._work(node)
            for v in node.outputs:
                self.work[id(v)] = work
            if node.kind != "map":
                self._count_pieces(node)
                for v in node.outputs:
                    self.ids.add(id(v))
                for k in range(len(node.inputs)):
                    if needs_memory(node, k):
                        self._store_base(node, k)
                continue
            if view_of(node) is ViewKind.REGROUPED:
                if not self._keeps_order(node.inputs[0], node.outputs[0].shape):
                    self._store(node.inputs[0])
            for out in node.outputs:
                self._consider(node, out, id(out) in outputs)
        self.aliases: dict[int, Value] = {}
        for v in graph.outputs:
            base = self._same_memory(v)
            if base is not None and id(base) not in outputs and base not in self.aliases.values():
                self.aliases[id(v)] = base
            else:
                self._store(v)

    def _store_parts(self, node: Node, outputs: set[int]) -> None:
        """Give memory to what an update writes if it is computed from the array that is updated.

        Then the array is not read any more when it is written, which can be done in its own memory: in a loop
        `a.at[i].set(a[i - 1])` moves one element, not the array.
        """
        array = node.inputs[0]
        parts = [v for v in node.inputs[1:] if self._is_computed_from(v, array)]
        if sum(v.nbytes for v in parts) * (PART if made_of_parts(node) else 1) > array.nbytes:
            return
        new = {id(v) for v in parts} - self.ids
        self.ids |= new
        if not self._dies_in(array, node, outputs):
            self.ids -= new

    def _is_computed_from(self, v: Value, array: Value) -> bool:
        """Whether reading an element of `v` reads elements of `array`."""
        seen: set[int] = set()
        stack = [v]
        while stack:
            u = stack.pop()
            if u is array:
                return True
            if id(u) in seen or u.producer is None or id(u) in self.ids or u.producer.kind != "map":
                continue
            seen.add(id(u))
            stack.extend(u.producer.inputs)
        return False

    def _as_expression(self, node: Node, outputs: set[int]) -> bool:
        """Whether an operation made of parts is read through predicates instead of written part by part."""
        writes = node.primitive.lower.writes
        if writes is Writes.PAD:
            return all(inner == 0 for _, _, inner in node.params["padding_config"])
        if writes is Writes.CONCATENATE:
            return sum(v.size > 0 for v in node.inputs) <= MAX_PIECES
        return not self._dies_in(node.inputs[0], node, outputs)

    def _dies_in(self, v: Value, node: Node, outputs: set[int]) -> bool:
        """Whether an operand has memory that the operation may overwrite, because nothing reads it any more."""
        if id(v) in outputs or v is node.inputs[1] or not self._read_before(v, node, outputs):
            return False
        if v.producer is None:
            return v.kind == "input" and 0 <= v.position < len(self.donated) and self.donated[v.position]
        return id(v) in self.ids

    def _read_before(self, v: Value, node: Node, outputs: set[int]) -> bool:
        """Whether all that reads a value, but the operation itself, is computed before it."""
        readers = [u for u in v.users if u is not node]
        seen: set[int] = set()
        while readers:
            u = readers.pop()
            if self.order[id(u)] >= self.order[id(node)]:
                return False
            if id(u) in seen or u.kind != "map":
                continue
            seen.add(id(u))
            for w in u.outputs:
                if id(w) not in self.ids and id(w) not in outputs:
                    readers.extend(w.users)
        return True

    def _count_pieces(self, node: Node) -> None:
        """Loops other than maps and reductions take parts from memory."""
        for v in node.inputs:
            products = node.kind == "reduce" and isinstance(node.primitive.lower, Library)
            if self.pieces.get(id(v), 0) and (node.kind != "reduce" or products):
                self._store(v)
                self.pieces[id(v)] = 0

    def _same_memory(self, v: Value) -> Value | None:
        """What a result is a mere reshape of, if that has memory of its own: then one serves for both."""
        base = v
        while base.producer is not None and id(base) not in self.ids and keeps_layout(base.producer):
            base = base.producer.inputs[0]
        return base if base is not v and base.producer is not None and id(base) in self.ids else None

    def _store(self, v: Value) -> None:
        if v.producer is not None:
            self.ids.add(id(v))

    def _store_base(self, node: Node, k: int) -> None:
        """Give memory to an operand of an instruction, or, for BLAS, to the array it is a usable view of."""
        v = node.inputs[k]
        if isinstance(node.primitive.lower, Library):
            base = view_base(v, self)
            if base is not None and base is not v:
                readable = self.ids | {id(base)}
                if product_operand(node, k, lambda w: id(w) in readable) is not None:
                    self._store(base)
                    return
        if self.sent_from(node, v) is None:
            self._store(v)

    def sent_from(self, node: Node, v: Value) -> View | None:
        """Where in memory the operand of a message or a native operation lies already, as a part of an array.

        None for what has to be put together. Decided once: an array that gets memory later may lie between.
        """
        key = id(node), id(v)
        if key not in self._sent:
            view = self._sent[key] = self._block_sent(node, v)
            if view is not None:
                self._bases.add(id(view.base))
        return self._sent[key]

    def is_sent_from(self, v: Value) -> bool:
        """Whether the operand of a message or a native operation is read as a part of `v`."""
        return id(v) in self._bases

    def _block_sent(self, node: Node, v: Value) -> View | None:
        lower = node.primitive.lower
        native = isinstance(lower, Native) and not lower.aliased(node.params)
        message = isinstance(lower, Communication) and lower.exchange in _FROM_ONE_PLACE
        if not (native or message) or not v.size or v.scalar is not None:
            return None
        view = block_in(v, lambda w: id(w) in self.ids)
        return None if view is None or (native and view.offset) else view  # native code may want memory aligned

    def _consider(self, node: Node, out: Value, is_output: bool) -> None:
        """Decide on one result of an element-by-element operation."""
        cost = node_cost(node)
        loads = 0
        alternatives = _has_alternatives(node)
        for v in node.inputs:
            if v.scalar is not None:
                continue
            c, n = (0, 1) if v.producer is None or id(v) in self.ids else self.inline_cost[id(v)]
            cost = max(cost, c) if alternatives else cost + c
            loads = max(loads, n) if alternatives else loads + n
        self.inline_cost[id(out)] = (cost, max(loads, 1))
        pieces = made_of_parts(node) + sum(self.pieces.get(id(v), 0) for v in node.inputs if id(v) not in self.ids)
        self.pieces[id(out)] = pieces
        if pieces > MAX_PIECES:
            self.ids.add(id(out))
        if self.work[id(out)] > MAX_WORK:
            self.ids.add(id(out))
        readers = len({id(u) for u in out.users}) + is_output
        if is_view(node):
            return
        if readers > 1 and (cost > RECOMPUTE_BELOW or loads > 2):
            self.ids.add(id(out))

    def _work(self, node: Node) -> int:
        """The work for one element of the results."""
        inside = [self._work_inside(v) for v in {id(v): v for v in node.inputs}.values()]
        return work_of(node) + (max(inside, default=0) if _has_alternatives(node) else sum(inside))

    def _only_operand(self, node: Node) -> Value | None:
        """The one operand that is computed where the operation is, if its memory serves as well as the result's.

        Then each turn of an unrolled loop is cut at the same place, and its kernels are alike.
        """
        inside = {id(v): v for v in node.inputs if self._work_inside(v)}
        if len(inside) != 1 or node.kind != "map" or not isinstance(node.primitive.lower, Elementwise):
            return None
        [v] = inside.values()
        fits = v.producer is not None and not is_view(v.producer) and v.nbytes <= node.outputs[0].nbytes
        return v if fits else None

    def _work_inside(self, v: Value) -> int:
        """The work for an element of an operand in the loops of an operation that reads it."""
        return 0 if v.producer is None or id(v) in self.ids else self.work.get(id(v), 0)

    def _keeps_order(self, v: Value, new_shape: tuple[int, ...]) -> bool:
        """Whether `v`'s elements, read in row-major order, come from row-major reads of what is in memory.

        Then a reshape that merges axes needs no division: positions stay linear.
        """
        seen: set[int] = set()
        stack = [v]
        while stack:
            v = stack.pop()
            if id(v) in seen or v.scalar is not None or v.producer is None or id(v) in self.ids or v.size <= 1:
                continue
            seen.add(id(v))
            if _only_splits(v.shape, new_shape):
                continue
            node = v.producer
            view = view_of(node)
            if isinstance(node.primitive.lower, Elementwise):
                if any(w.shape not in ((), v.shape) for w in node.inputs):
                    return False
                stack += node.inputs
            elif view in (ViewKind.SAME, ViewKind.REGROUPED):
                stack.append(node.inputs[0])
            elif view is not ViewKind.REPEATED or node.inputs[0].size not in (1, v.size):
                return False
        return True


def _only_splits(shape: tuple[int, ...], new_shape: tuple[int, ...]) -> bool:
    """Whether every axis of `new_shape` lies within one axis of `shape`."""
    j = 0
    for d in (d for d in shape if d != 1):
        part = 1
        while part < d:
            while j < len(new_shape) and new_shape[j] == 1:
                j += 1
            if j >= len(new_shape) or d % (part * new_shape[j]):
                return False
            part *= new_shape[j]
            j += 1
    return True


def made_of_parts(node: Node) -> bool:
    """Whether elements of the result are those of different operands, by their position."""
    return isinstance(node.primitive.lower, Structural) and node.primitive.lower.in_pieces


def _has_alternatives(node: Node) -> bool:
    """Whether an element of the result is one of one operand, so that only one of them is evaluated."""
    return made_of_parts(node) and node.params.get("combine") is None


def needs_memory(node: Node, k: int) -> bool:
    """Whether operand `k` must be an array in memory for the operation."""
    if node.kind == "opaque":
        return True
    if node.kind == "update" and not isinstance(node.primitive.lower, Cumulative):
        return k == 0 and node.primitive.lower.in_place
    return False
