"""Groups values into kernels: each group is computed in one loop nest.

A group has a frame: the shape its loops run over, and which of those axes are reduced. Its members are reductions over
exactly those axes, values of the frame's shape (computed inside), and values of the kept axes (computed once per row,
after the reductions). A member may read another one only at the same position, so one pass over the frame is enough.
"""

from __future__ import annotations

from collections.abc import Set
from dataclasses import field

from mpijax.compiler.fusion.expr import Expr, ExprTable, ReducedValue, children, mentions_inner, ordered
from mpijax.compiler.fusion.kept import kept_by_slices
from mpijax.compiler.fusion.kernel import Kernel, KernelStore, Member, MemberKind, Reduce, checked
from mpijax.compiler.fusion.pieces import fits
from mpijax.compiler.fusion.reader import CannotFuse, ElementReader
from mpijax.compiler.fusion.reductions import element_expr, frame_of
from mpijax.compiler.fusion.roots import MAX_WORK, NodeKind, Roots, made_of_parts
from mpijax.compiler.graph.nodes import Graph, Node, Value, operation_of, operator_of
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.shapes.index import Lin, LoopVar, linearized, var

MAX_MEMBERS = 24
_NOTHING: frozenset[int] = frozenset()


@dataclass
class FusionGroup:
    """A kernel under construction.

    reads: the arrays it reads. read_before: the same without the last member. work: see `MAX_WORK`. stored: the values
    written to memory.
    """

    order: int
    frame: tuple[int, ...]
    axes: tuple[int, ...]
    values: list[Value] = field(default_factory=list)
    members: list[Member] = field(default_factory=list)
    variables: list[LoopVar] = field(default_factory=list)
    reads: set[Value] = field(default_factory=set)
    read_before: set[Value] = field(default_factory=set)
    table: ExprTable = field(default_factory=ExprTable)
    reader: ElementReader | None = None
    phases: dict[Expr, int] = field(default_factory=dict)
    work: int = 0
    stored: list[Value] = field(default_factory=list)

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(d for a, d in enumerate(self.frame) if a not in self.axes)


@dataclass
class Unit:
    """A step of the program: a group, or one node with its own instruction."""

    group: FusionGroup | None
    node: Node | None
    order: int


def grouped(graph: Graph, donated: tuple[bool, ...] = ()) -> tuple[Roots, Grouper]:
    """The values with loops of their own, and the kernels that compute them.

    If loops cannot be split at the borders of every piecewise operation in a value, those operations get memory. An
    operation that cannot be computed in its own loops either is written piece by piece.
    """
    refused: set[int] = set()
    stored: set[int] = set()
    while True:
        roots = Roots(graph, donated, frozenset(refused), frozenset(stored))
        grouper = Grouper(graph, roots)
        if not grouper.too_many:
            kept = kept_by_slices(graph, roots) - stored
            if not kept:
                return roots, grouper
            stored |= kept
        for v in grouper.too_many:
            inside = _parts_read(v, roots)
            if not inside:
                refused.add(id(v.producer))
            elif inside.isdisjoint(stored):  # otherwise the value reads fewer pieces now; try again
                stored |= inside


def _parts_read(v: Value, roots: Roots) -> set[int]:
    """Ids of the results of piecewise operations that are evaluated inside `v`."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = list(operation_of(v).inputs)
    while stack:
        w = stack.pop()
        if id(w) in seen or w.producer is None or id(w) in roots.ids:
            continue
        seen.add(id(w))
        if made_of_parts(w.producer):
            found.add(id(w))
        stack.extend(w.producer.inputs)
    return found


class Grouper:
    """Puts roots into groups, in program order, each into an earlier group if possible.

    too_many: values whose loops cannot be split for all piecewise operations that they read. After the first one, it
        only searches for more, because roots are then chosen again.
    """

    def __init__(self, graph: Graph, roots: Roots):
        self.graph = graph
        self.roots = roots
        self.units: list[Unit] = []
        self.unit_of: dict[int, Unit] = {}
        self.depends: dict[int, set[int]] = {}
        self.too_many: list[Value] = []
        # For a value without loops of its own: the arrays read to compute it.
        self.arrays: dict[Value, set[Value]] = {}
        self.outputs = {id(v) for v in graph.outputs} | {id(v) for v in roots.aliases.values()}
        for node in graph.nodes:
            if roots.kinds[node] in (NodeKind.OPAQUE, NodeKind.UPDATE):
                self._add_node(node)
            else:
                for v in node.outputs:
                    if id(v) in roots.ids:
                        self._place(v)
                    else:
                        self.depends[id(v)] = self._needed(node)
                        self.arrays[v] = self._arrays(node)
        for unit in self.units:
            if unit.group is not None and not self.too_many:
                self._decide_storage(unit.group)

    # ------------------------------------------------------------ dependencies

    def _sources(self, v: Value) -> Set[int]:
        """Orders of the units whose results are read to evaluate `v`."""
        unit = self.unit_of.get(id(v))
        return self.depends.get(id(v), _NOTHING) if unit is None else {unit.order}

    def _needed(self, node: Node) -> set[int]:
        """Orders of the units whose results the operation reads, through operands that are computed inside it."""
        found: set[int] = set()
        for v in node.inputs:
            found |= self._sources(v)
        return found

    def _arrays(self, node: Node) -> set[Value]:
        """The arrays that the operation reads, through operands that are computed inside it."""
        found: set[Value] = set()
        for v in node.inputs:
            if v.producer is None or self._stored(v):
                found.add(v)
            else:
                found |= self.arrays[v]
        return found

    def _add_node(self, node: Node) -> None:
        unit = Unit(None, node, len(self.units))
        self.units.append(unit)
        for v in node.outputs:
            self.unit_of[id(v)] = unit

    def _place(self, v: Value) -> None:
        node = operation_of(v)
        if self.too_many and not (made_of_parts(node) or _parts_read(v, self.roots)):
            return
        work = self.roots.work[id(v)]
        if not self.too_many and self._joins_earlier(v, node, work):
            return
        frame, axes = frame_of(node) if self._reduces(v) else (v.shape, ())
        group = FusionGroup(len(self.units), frame, axes, work=work)
        unit = self.unit_of[id(v)] = Unit(group, None, group.order)
        self.units.append(unit)
        try:
            self._add(group, v)
        except CannotFuse:
            self.too_many.append(v)

    def _joins_earlier(self, v: Value, node: Node, work: int) -> bool:
        """Try to add a value to one of the last groups: one that reads the same arrays or whose members it reads."""
        needed, arrays = self._needed(node), self._arrays(node)
        for unit in reversed(self.units[-12:]):
            group = unit.group
            if group is None or len(group.values) >= MAX_MEMBERS or group.work + work > MAX_WORK:
                continue
            if any(o > unit.order for o in needed):
                break
            if unit.order not in needed and arrays.isdisjoint(group.reads):
                continue
            merged = self._merged(group, v, unit.order in needed)
            if merged is not None:
                unit.group = merged
                merged.order, merged.work = unit.order, group.work + work
                self.unit_of[id(v)] = unit
                return True
        return False

    def _merged(self, group: FusionGroup, v: Value, reads_group: bool) -> FusionGroup | None:
        """`group` with `v` added; None if they do not fit."""
        frame, axes = group.frame, group.axes
        if self._read_differently(group, v):
            return None
        if self._reduces(v):
            f, a = frame_of(operation_of(v))
            # A reduction of no axes (a product without a sum) cannot join a group with sums.
            without_sums = all(w.shape == frame and not self._reduces(w) for w in group.values)
            if not axes and f == frame and without_sums:
                axes = a
            elif (f, a) != (frame, axes):
                return None
        elif v.shape != frame and not (axes and squeezed_match(v.shape, frame, axes)):
            return None
        if axes == group.axes:
            return group if self._joins(group, v, reads_group) else None
        candidate = FusionGroup(group.order, frame, axes)
        try:
            for w in group.values:
                self._add(candidate, w)
        except CannotFuse:
            return None
        return candidate if self._joins(candidate, v, reads_group) else None

    def _read_differently(self, group: FusionGroup, v: Value) -> bool:
        """Whether `v` and a member of the group are fast in loops of different order only."""
        crossed, columns = self.roots.crossed, self.roots.columns
        if self._reduces(v):
            rows = [w for w in group.values if not self._reduces(w)]
            return any(id(w) in crossed or (id(v) in columns and w.shape == group.frame) for w in rows)
        rows_of_columns = v.shape == group.frame and any(id(w) in columns for w in group.values)
        return bool(group.axes) and (id(v) in crossed or rows_of_columns)

    def _joins(self, group: FusionGroup, v: Value, reads_group: bool) -> bool:
        """Add `v` to the group if it can be computed there and reads an array of the group; whether it was added."""
        try:
            read = self._add(group, v)
        except CannotFuse:
            return False
        if reads_group or read & group.read_before:
            return True
        self._take_back(group, v)
        return False

    # ------------------------------------------------------------ expressions

    def _add(self, group: FusionGroup, v: Value) -> set[Value]:
        """Add a value to a group; returns the arrays that it reads. Raises CannotFuse if it does not fit."""
        reader = group.reader
        if reader is None:
            reader = group.reader = ElementReader(self._stored, {}, group.table)
            group.variables = [LoopVar(d, f"i{a}") for a, d in enumerate(group.frame)]
        reader.begin()
        inner_index = tuple(var(v) for v in group.variables)
        kept = tuple(i for a, i in enumerate(inner_index) if a not in group.axes)
        try:
            member = self._member(group, v, reader, inner_index, kept)
            if not fits(group.variables, [*(m.expr for m in group.members), member.expr]):
                raise CannotFuse
        except CannotFuse:
            reader.undo()
            raise
        group.values.append(v)
        group.members.append(member)
        reader.members[v] = _MemberAccess(member, group, reader)
        group.read_before = set(group.reads)
        group.reads |= reader.buffers
        return reader.buffers

    def _take_back(self, group: FusionGroup, v: Value) -> None:
        """Undo the last addition."""
        group.values.pop()
        group.members.pop()
        assert group.reader is not None  # it has members
        del group.reader.members[v]
        group.reader.undo()
        group.reads = group.read_before

    def _reduces(self, v: Value) -> bool:
        return self.roots.kinds[operation_of(v)] is NodeKind.REDUCE

    def _stored(self, v: Value) -> bool:
        return id(v) in self.roots.ids

    def _member(self, group: FusionGroup, v: Value, reader: ElementReader, inner, kept) -> Member:
        if self._reduces(v):
            expr = element_expr(reader, operation_of(v), inner)
            return Member(v, MemberKind.REDUCE, kept, expr, phase_of(expr, group.phases))
        if v.shape == group.frame:
            expr = reader.computed(v, inner)
            return Member(v, MemberKind.INNER, inner, expr, phase_of(expr, group.phases))
        index = _outer_index(v.shape, group, kept)
        expr = reader.computed(v, index)
        if mentions_inner(expr, {group.variables[a] for a in group.axes}):
            raise CannotFuse
        return Member(v, MemberKind.OUTER, index, expr, phase_of(expr, group.phases))

    # ------------------------------------------------------------ storage

    def _decide_storage(self, group: FusionGroup) -> None:
        """Members that only this group reads get no memory."""
        inside = set(group.values)
        group.stored = [v for v in group.values if id(v) in self.outputs or self._is_read_outside(v, inside)]

    def _is_read_outside(self, v: Value, inside: set[Value]) -> bool:
        """Whether an operation outside of the group reads `v`, also through values without loops of their own."""
        if self.roots.is_sent_from(v):
            return True
        seen: set[Node] = set()
        users = list(self.graph.users_of(v))
        while users:
            user = users.pop()
            if user in seen:
                continue
            seen.add(user)
            if self.roots.kinds[user] in (NodeKind.OPAQUE, NodeKind.UPDATE):
                return True
            for out in user.outputs:
                if out in inside:
                    continue
                if id(out) in self.roots.ids:
                    return True
                users += self.graph.users_of(out)
        return False


class _MemberAccess:
    """Gives the expression with which other members of a group read one of its members."""

    def __init__(self, member: Member, group: FusionGroup, reader: ElementReader):
        self.member = member
        self.group = group
        self.reader = reader

    def __call__(self, index: tuple[Lin, ...]) -> Expr:
        m = self.member
        if len(index) != len(m.index) or any(a.key != b.key for a, b in zip(index, m.index, strict=True)):
            raise CannotFuse
        table = self.group.table
        if m.kind is MemberKind.REDUCE:
            return table.reduced(m, m.value.element)
        if m.kind is MemberKind.OUTER:
            return m.expr
        return table.member(m)


def squeezed_match(shape, frame, axes) -> bool:
    """Whether `shape` is the frame's kept axes, with the reduced ones dropped or of size 1."""
    kept = tuple(d for a, d in enumerate(frame) if a not in axes)
    return shape == kept or shape == tuple(1 if a in axes else d for a, d in enumerate(frame))


def _outer_index(shape, group: FusionGroup, kept) -> tuple[Lin, ...]:
    if shape == group.kept:
        return kept
    it = iter(kept)
    return tuple(Lin(0) if a in group.axes else next(it) for a in range(len(group.frame)))


def phase_of(expr: Expr, known: dict[Expr, int]) -> int:
    """The number of passes that must finish before the expression can be evaluated; `known` caches it."""
    for e in ordered([expr], known):
        if isinstance(e, ReducedValue):
            known[e] = e.member.phase + 1
        else:
            known[e] = max([known[a] for a in children(e)], default=0)
    return known[expr]


def kernel_of(group: FusionGroup) -> Kernel:
    """The kernel that computes a group."""
    reduces: list[Reduce] = []
    inner: list[KernelStore] = []
    outer: list[KernelStore] = []
    for m in group.members:
        expr, phase = m.expr, m.phase
        if m.kind is MemberKind.REDUCE:
            reduces.append(Reduce(m, operator_of(operation_of(m.value)), expr, phase, m.value.element))
            expr, phase = group.table.reduced(m, m.value.element), phase + 1
        if m.value in group.stored:
            target = inner if m.kind is MemberKind.INNER else outer
            target.append(KernelStore(m.value, linearized(m.index, m.value.shape), expr, phase))
    nodes = [operation_of(v) for v in group.values]
    kernel = Kernel(
        group.variables, group.axes, tuple(reduces), tuple(inner), tuple(outer),
        source=nodes[-1].source, name=joined_name(nodes), members=tuple(group.members),
        computed={m.value: m.expr for m in group.members},
    )  # fmt: skip
    return checked(kernel)


def joined_name(nodes: list[Node]) -> str:
    """A kernel's name, from the names of its operations."""
    return "_".join([node.primitive.name for node in nodes[:6]]).replace("-", "_")
