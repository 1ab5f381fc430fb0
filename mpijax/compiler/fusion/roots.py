"""Decides which values get memory or a loop of their own, and which are computed where they are read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from enum import Enum, auto

from mpijax.compiler.fusion.gemm import block_in, product_operand, view_base
from mpijax.compiler.fusion.reductions import frame_of, read_in_order
from mpijax.compiler.graph.nodes import Graph, Node, Value, ValueKind, operation_of
from mpijax.compiler.graph.products import StridedView, use_blas
from mpijax.compiler.graph.views import is_view, keeps_layout, order_of, start_of, view_of
from mpijax.core.rules.lowering import (
    Communication,
    Cumulative,
    Elementwise,
    Exchange,
    Library,
    Native,
    Reduction,
    Structural,
    ViewKind,
    Writes,
)

# Values with several readers that cost more than this are computed once and stored.
RECOMPUTE_BELOW = 4


def node_cost(node: Node) -> int:
    """The cost of recomputing one element, without its inputs."""
    lower = node.primitive.lower
    return lower.cost if isinstance(lower, (Elementwise, Structural)) else 0


# The side of the tiles in which loops read operands that lie across their rows (`compiler.loops.crossing`). Shorter
# rows are read element by element.
TILE = 16

# The maximum work for one element in a kernel, in units of an addition; kernels with more are cut. Larger kernels are
# slower: registers spill (150 sines of 2 million numbers took 420 ms at 480, 160 ms at 80), and LLVM's compile time
# grows faster than linearly. Smaller ones are more often alike (`compiler.loops.alike`).
MAX_WORK = 80
# The maximum that one operation counts: the most expensive ones are functions with loops of their own.
MAX_WORK_OF_ONE = 60


def work_of(node: Node) -> int:
    """The work of an operation for `MAX_WORK`; index maps count too, since they make expressions deeper."""
    return min(max(node_cost(node), 1), MAX_WORK_OF_ONE)


# The maximum number of piecewise values in one expression; beyond it, an intermediate value is stored.
MAX_PIECES = 24
# A piecewise value is stored if more operations than this read it, and if these evaluate more piecewise operations than
# this: 5 x 5 windows of a reflected array (512 x 512) took 1.9 ms with predicates, 0.9 ms from memory, and a fifth of
# the time to compile.
MAX_WINDOWS, MAX_PIECES_READ = 5, 24
# A value is stored before it is repeated this many times (by a broadcast, or as an operand of a product) if one element
# costs this much, and if the repetitions cost this much more than one pass over the value.
REPEATED, EXPENSIVE, WORTH_A_LOOP = 8, 8, 4096
# A value is stored that a reduction would read along rows and across rows at once, if it has this many elements, and if
# it needs no more memory than this: `abs(x - x.T).max()` of 1024 x 1024 took 5.7 ms in one loop nest, 1.2 in two.
CROSSED_FROM, CROSSED_UP_TO = 1 << 15, 1 << 26
# An array must be this many times larger than a part at a fixed place for the part to be stored before it is written.
PART = 8
# Exchanges that only read their operand and are not packed with others.
_FROM_ONE_PLACE = (Exchange.PERMUTE, Exchange.ALLGATHER, Exchange.ALLTOALL, Exchange.REDUCE_SCATTER)


class NodeKind(Enum):
    """How an operation is computed.

    MAP: element by element, where it is read or in a loop nest. REDUCE: in a loop nest that combines elements along
    axes. UPDATE: in loop nests that write parts of an array, one after the other. OPAQUE: by one instruction that is no
    loop nest.
    """

    MAP = auto()
    REDUCE = auto()
    UPDATE = auto()
    OPAQUE = auto()


class Roots:
    """The set of values computed by loops of their own (`ids`), decided once per graph.

    kinds: how each operation is computed.
    refused: piecewise operations that must be written piece by piece (see `compiler.fusion.updates`).
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
        self.kinds: dict[Node, NodeKind] = {}
        # The number of piecewise operations evaluated inside a value.
        self.pieces: dict[int, int] = {}
        self.inline_cost: dict[int, tuple[int, int]] = {}
        # For an array of several axes, those along which it is contiguous in memory, or what it is computed from is.
        self.contiguous: dict[int, frozenset[int]] = {}
        # The work for one element of a value, including operands that are recomputed inside it.
        self.work: dict[int, int] = {}
        self._sent: dict[tuple[int, int], StridedView | None] = {}
        self._bases: set[int] = set()
        self.order = {id(node): k for k, node in enumerate(graph.nodes)}
        outputs = {id(v) for v in graph.outputs}
        for node in graph.nodes:
            if isinstance(node.primitive.lower, Structural) and node.primitive.lower.in_place:
                self._store_parts(node, outputs)
            parts = made_of_parts(node) and id(node) not in refused
            kind = self.kinds[node] = _kind(node, parts and self._as_expression(node, outputs))
            work = self._work(node)
            if work > MAX_WORK and (before := self._only_operand(node)) is not None:
                self._store(before)
                work = self._work(node)
            for v in node.outputs:
                self.work[id(v)] = work
            if kind is not NodeKind.MAP:
                self._count_pieces(node)
                for v in node.outputs:
                    self.ids.add(id(v))
                if kind is NodeKind.REDUCE:
                    self._store_crossed(node)
                    frame, _ = frame_of(node)
                    for v in node.inputs:
                        self._store_repeated(v, math.prod(frame))
                for k in range(len(node.inputs)):
                    if self._needs_memory(node, k):
                        self._store_base(node, k)
                continue
            if isinstance(node.primitive.lower, Elementwise) or view_of(node) is ViewKind.REPEATED:
                for v in node.inputs:
                    self._store_repeated(v, node.outputs[0].size)
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
        # Stored values that read columns. If their loops do not reduce, these read them tile by tile.
        self.crossed = {id(v) for node in graph.nodes for v in node.outputs if self._reads_across(v)}
        # Results of reductions that read columns only: loops over columns outside, over rows inside.
        self.columns = {id(v) for node in graph.nodes if self._reduces_columns(node) for v in node.outputs}

    def _store_parts(self, node: Node, outputs: set[int]) -> None:
        """Store the new part of an update if it is computed from the updated array.

        Then no later read of the array remains when it is written, so it can be updated in place: in a loop,
        `a.at[i].set(a[i - 1])` moves one element instead of the array.
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
        """Whether an element of `v` is computed from elements of `array`."""
        seen: set[int] = set()
        stack = [v]
        while stack:
            u = stack.pop()
            if u is array:
                return True
            if id(u) in seen or not self._is_inline(u):
                continue
            seen.add(id(u))
            stack.extend(operation_of(u).inputs)
        return False

    def _as_expression(self, node: Node, outputs: set[int]) -> bool:
        """Whether a piecewise operation is read through predicates instead of being written piece by piece."""
        writes = node.primitive.lower.writes
        if writes is Writes.PAD:
            return all(inner == 0 for _, _, inner in node.params["padding_config"])
        if writes is Writes.CONCATENATE:
            return sum(v.size > 0 for v in node.inputs) <= MAX_PIECES
        return not self._dies_in(node.inputs[0], node, outputs)

    def _dies_in(self, v: Value, node: Node, outputs: set[int]) -> bool:
        """Whether the operation may overwrite the memory of `v`, because nothing reads `v` afterwards."""
        if id(v) in outputs or v is node.inputs[1] or not self._read_before(v, node, outputs):
            return False
        if v.producer is None:
            return v.kind is ValueKind.INPUT and 0 <= v.position < len(self.donated) and self.donated[v.position]
        return id(v) in self.ids

    def _read_before(self, v: Value, node: Node, outputs: set[int]) -> bool:
        """Whether all other readers of a value are computed before `node`."""
        readers = [u for u in self.graph.users_of(v) if u is not node]
        seen: set[int] = set()
        while readers:
            u = readers.pop()
            if self.order[id(u)] >= self.order[id(node)]:
                return False
            if id(u) in seen or self.kinds[u] is not NodeKind.MAP:
                continue
            seen.add(id(u))
            for w in u.outputs:
                if id(w) not in self.ids and id(w) not in outputs:
                    readers.extend(self.graph.users_of(w))
        return True

    def _count_pieces(self, node: Node) -> None:
        """Stores piecewise operands of nodes other than maps and plain reductions; they read them from memory."""
        products = isinstance(node.primitive.lower, Library)
        for v in node.inputs:
            if self.pieces.get(id(v), 0) and (self.kinds[node] is not NodeKind.REDUCE or products):
                self._store(v)
                self.pieces[id(v)] = 0

    def _reshaped(self, v: Value) -> Value:
        """The value that `v` is a mere reshape of; `v` itself if it is none."""
        while v.producer is not None and id(v) not in self.ids and keeps_layout(v.producer):
            v = v.producer.inputs[0]
        return v

    def _same_memory(self, v: Value) -> Value | None:
        """The stored array that a result is a mere reshape of, which can share its memory; else None."""
        base = self._reshaped(v)
        return base if base is not v and base.producer is not None and id(base) in self.ids else None

    def _store(self, v: Value) -> None:
        if v.producer is not None:
            self.ids.add(id(v))

    def _store_repeated(self, v: Value, readers: int) -> None:
        """Store an expensive value that many more elements read than it has.

        In a loop over rows this does not cut the kernel: what is computed once per row stays a member of it.
        """
        if v.size <= 1 or v.size * REPEATED > readers:
            return
        v = self._reshaped(v)
        if v.producer is None or id(v) in self.ids:
            return
        cost, _ = self.inline_cost[id(v)]
        if cost > EXPENSIVE and cost * (readers - v.size) > WORTH_A_LOOP:
            self.ids.add(id(v))

    def _store_crossed(self, node: Node) -> None:
        """Store an operand of a reduction whose rows are columns of another operand.

        A loop that does not reduce computes it, and can read columns tile by tile.
        """
        frame, _ = frame_of(node)
        operands = node.inputs if read_in_order(node) else ()
        if len(frozenset().union(*map(self._contiguous, operands))) < 2:
            return
        for v in operands:
            fits = v.size >= CROSSED_FROM and v.nbytes <= CROSSED_UP_TO
            if fits and self._is_inline(v) and self._contiguous(v) != {len(frame) - 1}:
                self._store(v)

    def _is_inline(self, v: Value) -> bool:
        """Whether an element of a value is computed where it is read."""
        return v.producer is not None and id(v) not in self.ids and self.kinds[v.producer] is NodeKind.MAP

    def _reads_across(self, v: Value) -> bool:
        """Whether the loop that computes and stores a value reads arrays across their rows."""
        if id(v) not in self.ids or self.kinds[operation_of(v)] is not NodeKind.MAP:
            return False
        return not self._read_along(v) <= {len(v.shape) - 1}

    def _reduces_columns(self, node: Node) -> bool:
        """Whether a reduction along the last axis reads arrays across it."""
        if self.kinds[node] is not NodeKind.REDUCE or not read_in_order(node):
            return False
        frame, axes = frame_of(node)
        along = frozenset().union(*map(self._contiguous, node.inputs))
        return len(frame) - 1 in axes and bool(along) and len(frame) - 1 not in along

    def _contiguous(self, v: Value) -> frozenset[int]:
        """The axes along which memory is read in steps of one where `v` is computed; without small arrays."""
        found = self.contiguous.get(id(v))
        if found is None:
            found = self.contiguous[id(v)] = frozenset(self._steps_of_one(v))
        return found

    def _steps_of_one(self, v: Value) -> Iterable[int]:
        if v.scalar is not None or len(v.shape) < 2 or v.size < CROSSED_FROM:
            return ()
        if not self._is_inline(v):
            return (len(v.shape) - 1,) if v.shape[-1] >= TILE else ()
        return self._read_along(v)

    def _read_along(self, v: Value) -> set[int]:
        """The axes of a value along which what it is computed from is read in steps of one."""
        node = operation_of(v)
        if isinstance(node.primitive.lower, Elementwise):
            return set().union(*(self._contiguous(u) for u in node.inputs if u.shape == v.shape))
        order = order_of(node)
        if order is not None:
            before = self._contiguous(node.inputs[0])
            return {d for d, axis in enumerate(order) if axis in before}
        if keeps_layout(node):
            of_before, of_now = ([d for d, n in enumerate(u.shape) if n > 1] for u in (node.inputs[0], v))
            if [node.inputs[0].shape[d] for d in of_before] == [v.shape[d] for d in of_now]:
                before = self._contiguous(node.inputs[0])
                return {now for was, now in zip(of_before, of_now, strict=True) if was in before}
        return set(self._contiguous(node.inputs[0])) if start_of(node) is not None else set()

    def _needs_memory(self, node: Node, k: int) -> bool:
        """Whether the operation needs operand `k` as an array in memory."""
        if self.kinds[node] is NodeKind.UPDATE and not isinstance(node.primitive.lower, Cumulative):
            return k == 0 and node.primitive.lower.in_place
        return self.kinds[node] is NodeKind.OPAQUE

    def _store_base(self, node: Node, k: int) -> None:
        """Store an operand of an instruction, or, for BLAS, the array that it is a usable view of."""
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

    def sent_from(self, node: Node, v: Value) -> StridedView | None:
        """The part of a stored array that the operand of a message or native operation is; None if it must be copied.

        Decided once: an array stored later could come in between.
        """
        key = id(node), id(v)
        if key not in self._sent:
            view = self._sent[key] = self._block_sent(node, v)
            if view is not None:
                self._bases.add(id(view.base))
        return self._sent[key]

    def is_sent_from(self, v: Value) -> bool:
        """Whether a message or native operation reads a part of `v`."""
        return id(v) in self._bases

    def _block_sent(self, node: Node, v: Value) -> StridedView | None:
        lower = node.primitive.lower
        native = isinstance(lower, Native) and not lower.aliased(node.params)
        message = isinstance(lower, Communication) and lower.exchange in _FROM_ONE_PLACE
        if not (native or message) or not v.size or v.scalar is not None:
            return None
        view = block_in(v, lambda w: id(w) in self.ids)
        return None if view is None or (native and view.offset) else view  # native code may need aligned memory

    def _consider(self, node: Node, out: Value, is_output: bool) -> None:
        """Decide whether one result of an elementwise operation is stored."""
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
        readers = len({id(u) for u in self.graph.users_of(out)}) + is_output
        if is_view(node):
            return
        if readers > MAX_WINDOWS and pieces * readers > MAX_PIECES_READ:
            self.ids.add(id(out))
        if readers > 1 and (cost > RECOMPUTE_BELOW or loads > 2):
            self.ids.add(id(out))

    def _work(self, node: Node) -> int:
        """The work for one element of the results."""
        inside = [self._work_inside(v) for v in {id(v): v for v in node.inputs}.values()]
        return work_of(node) + (max(inside, default=0) if _has_alternatives(node) else sum(inside))

    def _only_operand(self, node: Node) -> Value | None:
        """The only operand computed inside the operation, if storing it costs no more memory than the result.

        Then each iteration of an unrolled loop is cut at the same place, and its kernels are alike.
        """
        inside = {id(v): v for v in node.inputs if self._work_inside(v)}
        if len(inside) != 1 or not isinstance(node.primitive.lower, Elementwise):
            return None
        [v] = inside.values()
        fits = v.producer is not None and not is_view(v.producer) and v.nbytes <= node.outputs[0].nbytes
        return v if fits else None

    def _work_inside(self, v: Value) -> int:
        """The work for an element of an operand that is recomputed in its reader's loops; 0 if it is loaded."""
        return 0 if v.producer is None or id(v) in self.ids else self.work.get(id(v), 0)

    def _keeps_order(self, v: Value, new_shape: tuple[int, ...]) -> bool:
        """Whether `v`, read in row-major order, reads arrays in memory in row-major order.

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
    """Whether every axis of `new_shape` is part of one axis of `shape`."""
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


def _kind(node: Node, is_expression: bool) -> NodeKind:
    """How an operation is computed. is_expression: whether it is piecewise, and is read through predicates."""
    lower = node.primitive.lower
    if is_expression or isinstance(lower, Elementwise):
        return NodeKind.MAP
    if isinstance(lower, Structural):
        return NodeKind.MAP if lower.writes is None else NodeKind.UPDATE
    if isinstance(lower, Reduction) or (isinstance(lower, Library) and not use_blas(node)):
        return NodeKind.REDUCE
    return NodeKind.UPDATE if isinstance(lower, Cumulative) else NodeKind.OPAQUE


def made_of_parts(node: Node) -> bool:
    """Whether the operation is piecewise: the position of an element decides which operand it comes from."""
    return isinstance(node.primitive.lower, Structural) and node.primitive.lower.in_pieces


def _has_alternatives(node: Node) -> bool:
    """Whether each element of the result comes from one operand, so that only one operand is evaluated."""
    return made_of_parts(node) and node.params.get("combine") is None
