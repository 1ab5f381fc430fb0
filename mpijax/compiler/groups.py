"""Kernels: groups of values computed in one loop nest.

A group has a frame: the shape its loops run over, and which of those axes are reduced. Its members
are reductions over exactly those axes, values of the frame's shape (computed inside), and values of the
kept axes (computed per row, after the reductions). Members may read each other at the same
position only; that is what makes one pass over the frame enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from mpijax.compiler.expr import Expr, ExprTable, children, loop_vars, position_of, reachable
from mpijax.compiler.graph import Graph, Node, Value
from mpijax.compiler.index import Lin, LoopVar, var
from mpijax.compiler.pieces import fits
from mpijax.compiler.reader import CannotFuse, Reader
from mpijax.compiler.roots import Roots, made_of_parts

MAX_MEMBERS = 24


@dataclass
class Member:
    """A value the kernel computes.

    kind: `reduce`, `inner` (one per element of the frame), `outer` (one per kept position).
    phase: which pass over the row makes it (reduce, inner), or after how many passes it is known (outer).
    expr: the element, or what is reduced. stored: whether it goes to memory.
    """

    value: Value
    kind: str
    index: tuple[Lin, ...]
    expr: Expr
    phase: int
    stored: bool = True


@dataclass
class Group:
    """A kernel in the making."""

    order: int
    frame: tuple[int, ...]
    axes: tuple[int, ...]
    values: list[Value]
    members: list[Member] = field(default_factory=list)
    variables: list[LoopVar] = field(default_factory=list)
    reads: set[int] = field(default_factory=set)
    table: ExprTable | None = None

    @property
    def kept(self) -> tuple[int, ...]:
        return tuple(d for a, d in enumerate(self.frame) if a not in self.axes)


@dataclass
class Unit:
    """A step of the program: a group or a single node."""

    group: Group | None
    node: Node | None
    order: int


def _reduce_frame(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    from mpijax.compiler.reductions import frame_of

    return frame_of(node)


class TooManyParts(CannotFuse):
    """The loops of a value on its own cannot be split for all operations made of parts that it reads."""

    def __init__(self, value: Value):
        super().__init__(value)
        self.value = value


def grouped(graph: Graph, donated: tuple[bool, ...] = ()) -> tuple[Roots, Grouper]:
    """The values that get loops of their own, and the kernels these form.

    Where loops cannot be split for all operations made of parts, these get memory; those that cannot be done
    in loops of their own either are done part by part.
    """
    refused: set[int] = set()
    stored: set[int] = set()
    while True:
        roots = Roots(graph, donated, frozenset(refused), frozenset(stored))
        try:
            return roots, Grouper(graph, roots)
        except TooManyParts as e:
            inside = _parts_read(e.value, roots)
            if inside:
                stored |= inside
            else:
                refused.add(id(e.value.producer))


def _parts_read(v: Value, roots: Roots) -> set[int]:
    """Results of operations made of parts that are evaluated for `v`, by id."""
    found: set[int] = set()
    seen: set[int] = set()
    stack = list(v.producer.inputs)
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
    """Puts roots into groups, in program order, each into an earlier group where that is possible."""

    def __init__(self, graph: Graph, roots: Roots):
        self.graph = graph
        self.roots = roots
        self.units: list[Unit] = []
        self.unit_of: dict[int, Unit] = {}
        self.depends: dict[int, set[int]] = {}
        for node in graph.nodes:
            if node.kind in ("opaque", "update"):
                self._add_node(node)
            else:
                for v in node.outputs:
                    if id(v) in roots.ids:
                        self._place(v)
        for unit in self.units:
            if unit.group is not None:
                self._decide_storage(unit.group)

    # ------------------------------------------------------------ dependencies

    def _sources(self, v: Value) -> set[int]:
        """Orders of the units whose results an evaluation of `v` reads."""
        unit = self.unit_of.get(id(v))
        if unit is not None:
            return {unit.order}
        if v.producer is None:
            return set()
        known = self.depends.get(id(v))
        if known is None:
            known = set()
            for w in v.producer.inputs:
                known |= self._sources(w)
            self.depends[id(v)] = known
        return known

    def _add_node(self, node: Node) -> None:
        unit = Unit(None, node, len(self.units))
        self.units.append(unit)
        for v in node.outputs:
            self.unit_of[id(v)] = unit

    def _place(self, v: Value) -> None:
        node = v.producer
        needed = set()
        for w in node.inputs:
            needed |= self._sources(w)
        for unit in reversed(self.units[-12:]):
            group = unit.group
            if group is None or len(group.values) >= MAX_MEMBERS:
                continue
            if any(o > unit.order for o in needed):
                break
            merged = self._merged(group, v, unit.order in needed)
            if merged is not None:
                unit.group = merged
                merged.order = unit.order
                self.unit_of[id(v)] = unit
                return
        frame, axes = _reduce_frame(node) if node.kind == "reduce" else (v.shape, ())
        unit = Unit(None, None, len(self.units))
        self.unit_of[id(v)] = unit
        group = Group(unit.order, frame, axes, [v])
        try:
            self._build(group)
        except CannotFuse as e:
            raise TooManyParts(v) from e
        unit.group = group
        self.units.append(unit)

    def _merged(self, group: Group, v: Value, reads_group: bool) -> Group | None:
        """`group` with `v` added, or None where they do not fit."""
        frame, axes = group.frame, group.axes
        if v.producer.kind == "reduce":
            f, a = _reduce_frame(v.producer)
            # A product without a sum (a reduction of no axes) has no place inside of one.
            if not axes and f == frame and all(w.shape == frame and w.producer.kind != "reduce" for w in group.values):
                axes = a
            elif (f, a) != (frame, axes):
                return None
        elif v.shape != frame and not (axes and squeezed_match(v.shape, frame, axes)):
            return None
        candidate = Group(group.order, frame, axes, [*group.values, v])
        try:
            self._build(candidate)
        except CannotFuse:
            return None
        if not reads_group and not (candidate.reads_of_last & group.reads):  # type: ignore[attr-defined]
            return None
        return candidate

    # ------------------------------------------------------------ expressions

    def _build(self, group: Group) -> None:
        """Expressions and phases of all members; raises CannotFuse."""
        group.variables = [LoopVar(d, f"i{a}") for a, d in enumerate(group.frame)]
        inner_index = tuple(var(v) for v in group.variables)
        kept = tuple(i for a, i in enumerate(inner_index) if a not in group.axes)
        group.table = ExprTable()
        reader = Reader(self._stored, {}, group.table)
        group.members = []
        for v in group.values:
            reader.buffers = set()
            member = self._member(group, v, reader, inner_index, kept)
            group.members.append(member)
            reader.members[id(v)] = _Access(member, group, reader)
            group.reads |= reader.buffers
            group.reads_of_last = reader.buffers  # type: ignore[attr-defined]
        if not fits(group.variables, [m.expr for m in group.members]):
            raise CannotFuse

    def _stored(self, v: Value) -> bool:
        return id(v) in self.roots.ids

    def _member(self, group: Group, v: Value, reader: Reader, inner, kept) -> Member:
        node = v.producer
        if node.kind == "reduce":
            from mpijax.compiler.reductions import element_expr

            expr = element_expr(reader, node, inner)
            return Member(v, "reduce", kept, expr, phase_of(expr))
        if v.shape == group.frame:
            expr = reader.computed(v, inner)
            return Member(v, "inner", inner, expr, phase_of(expr))
        index = _outer_index(v.shape, group, kept)
        expr = reader.computed(v, index)
        if mentions_inner(expr, {id(group.variables[a]) for a in group.axes}):
            raise CannotFuse
        return Member(v, "outer", index, expr, phase_of(expr))

    # ------------------------------------------------------------ storage

    def _decide_storage(self, group: Group) -> None:
        """Members that only this group reads need no memory."""
        inside = {id(v) for v in group.values}
        outputs = {id(v) for v in self.graph.outputs} | {id(v) for v in self.roots.aliases.values()}
        for member in group.members:
            v = member.value
            member.stored = id(v) in outputs or any(self._leaves(u, inside, v) for u in v.users)

    def _leaves(self, user: Node, inside: set[int], v: Value) -> bool:
        """Whether a use of `v` is outside the group: follows values computed where they are read."""
        if user.kind in ("opaque", "update"):
            return True
        for out in user.outputs:
            if id(out) in inside:
                continue
            if id(out) in self.roots.ids:
                return True
            if any(self._leaves(u, inside, v) for u in out.users):
                return True
        return False


class _Access:
    """How the other members of a group read one of its members."""

    def __init__(self, member: Member, group: Group, reader: Reader):
        self.member = member
        self.group = group
        self.reader = reader

    def __call__(self, index: tuple[Lin, ...]) -> Expr:
        m = self.member
        if len(index) != len(m.index) or any(a.key != b.key for a, b in zip(index, m.index, strict=True)):
            raise CannotFuse
        table = self.group.table
        if m.kind == "reduce":
            return table.make("acc", (), m.value.element, m, id(m.value))
        if m.kind == "outer":
            return m.expr
        return table.make("inner", (m.expr,), m.value.element, m, id(m.value))


def squeezed_match(shape, frame, axes) -> bool:
    """Whether `shape` is the frame's kept axes, with the reduced ones dropped or of size 1."""
    kept = tuple(d for a, d in enumerate(frame) if a not in axes)
    return shape == kept or shape == tuple(1 if a in axes else d for a, d in enumerate(frame))


def _outer_index(shape, group: Group, kept) -> tuple[Lin, ...]:
    if shape == group.kept:
        return kept
    it = iter(kept)
    return tuple(Lin(0) if a in group.axes else next(it) for a in range(len(group.frame)))


def phase_of(expr: Expr) -> int:
    """How many passes must be complete before the expression can be evaluated."""
    memo: dict[int, int] = {}

    def visit(e: Expr) -> int:
        found = memo.get(id(e))
        if found is None:
            if e.op == "acc":
                found = e.attr.phase + 1
            else:
                found = max((visit(a) for a in children(e)), default=0)
            memo[id(e)] = found
        return found

    return visit(expr)


def mentions_inner(expr: Expr, inner: set[int]) -> bool:
    """Whether the expression depends on one of the loop variables."""
    positions = (position_of(e) for e in reachable([expr]))
    return any(position is not None and loop_vars(position) & inner for position in positions)
