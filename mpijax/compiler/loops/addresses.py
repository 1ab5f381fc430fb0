"""Kernels as text: positions in memory, integers from loop variables, and the scopes in which they are known."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.compiler.fusion.expr import Expr, ordered
from mpijax.compiler.fusion.kernel import Kernel
from mpijax.compiler.loops.alike import as_integer
from mpijax.compiler.loops.schedule import Schedule
from mpijax.core.index import Dynamic, Lin, LoopVar, Quotient, atom_key
from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.types import Scalar, info

INT64 = np.dtype(np.int64)

# Elements by which positions may differ to be reached from one pointer, the distance being part of the code. Neighbours
# in a row then take one register, of which a stencil over several arrays else needs more than there are.
NEAR = 8


class Params:
    """Run-time integers of a kernel; each distinct one is a slot."""

    def __init__(self) -> None:
        self.values: list[int] = []
        self.slots: dict[int, int] = {}

    def apart(self, value: int) -> int:
        """A slot that no equal value shares."""
        self.values.append(value)
        return len(self.values) - 1

    def slot(self, value: int) -> int:
        if value not in self.slots:
            self.slots[value] = len(self.values)
            self.values.append(value)
        return self.slots[value]


class Scope:
    """A region of code: the loop variables bound in it and what has been computed there."""

    def __init__(self, parent: Scope | None, bound: dict[int, str], vector: int | None = None, lanes: int = 1):
        self.parent = parent
        self.bound = bound
        self.vector: int | None = vector if vector is not None else (parent.vector if parent else None)
        self.lanes: int = lanes if vector is not None else (parent.lanes if parent else 1)
        self.known: dict[Any, Any] = {}
        inherited = parent.available if parent else frozenset()
        self.available: frozenset = inherited | frozenset(bound)

    def lookup(self, key: Any) -> Any:
        scope: Scope | None = self
        while scope is not None:
            found = scope.known.get(key)
            if found is not None:
                return found
            scope = scope.parent
        return None

    def variable(self, var_id: int) -> str:
        scope: Scope | None = self
        while scope is not None:
            name = scope.bound.get(var_id)
            if name is not None:
                return name
            scope = scope.parent
        raise KeyError(var_id)


class Addresses:
    """The text of one kernel so far, and where in memory its elements are."""

    def __init__(self, kernel: Kernel, name: str):
        self.name = name
        self.text = FunctionText()
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.params = Params()
        self.loaded: set[int] = set()
        # Where the constants are that are passed when the kernel runs, and those that are known in all lanes.
        self.arguments: dict[int, int] = {}
        self.splats: set[str] = set()
        self.operands: list[tuple[Any, int]] = []
        self.operand_slots: dict[tuple[int, int], int] = {}
        self.anchors: dict[Any, list[int]] = {}
        self.block = "entry"
        self.blocks = 0
        self.schedule = Schedule(kernel)
        self.passed = {id(e) for e in kernel.arguments}
        self.kernel = self.schedule.source
        self.dependencies: dict[int, frozenset] = {}
        self.loop_of: dict[int, tuple[LoopVar, list[LoopVar]]] = {}
        for loop in self.schedule.loops:
            for v in loop:
                self.loop_of[id(v)] = (loop[-1], loop)
        self.acc_values: dict[int, Any] = {}
        # What reads expressions from where they were kept, column by column (see `compiler.loops.tiles`).
        self.columns: dict[int, Any] = {}
        self.compared: dict[int, bool] = {}
        self.phase = 0
        # Expressions are known by their identity, so what is made on the way must stay.
        self.keepalive: list[Expr] = []
        self.rows: dict[int, tuple[Any, str]] = {}
        for member, length in self.schedule.rows():
            name = self.text.fresh()
            count = self.param(length)
            self.entry.append(
                f"  {name} = alloca {self.builder(1)._element(member.value.element)}, i64 {count}, align 64"
            )
            self.rows[id(member.value)] = (member, name)

    # ------------------------------------------------------------ text

    def builder(self, lanes: int) -> Builder:
        return Builder(lanes, self.text, self.lines)

    def label(self, hint: str) -> str:
        self.blocks += 1
        return f"{hint}{self.blocks}"

    def emit(self, line: str) -> None:
        self.lines.append("  " + line)

    def param(self, value: int) -> str:
        """The operand text of a run-time integer; loaded once at the entry."""
        slot = self.params.slot(value)
        name = f"%p{slot}"
        if slot not in self.loaded:
            self.loaded.add(slot)
            self.entry.append(f"  %pp{slot} = getelementptr i64, ptr %params, i64 {slot}")
            self.entry.append(f"  {name} = load i64, ptr %pp{slot}, align 8")
        return name

    def argument(self, e: Expr, lanes: int) -> Scalar:
        """A constant that the kernel is passed; loaded, and copied to all lanes, at the entry."""
        element, bits = info(e.dtype).compute, 8 * e.dtype.itemsize
        slot = self.arguments.get(id(e))
        if slot is None:
            slot = self.arguments[id(e)] = self.params.apart(as_integer(e))
            self.entry.append(f"  %cp{slot} = getelementptr i64, ptr %params, i64 {slot}")
            self.entry.append(f"  %ci{slot} = load i{bits}, ptr %cp{slot}, align 8")
            self.entry.append(f"  %c{slot} = bitcast i{bits} %ci{slot} to {element}")
        if lanes == 1:
            return Scalar(e.dtype, f"%c{slot}")
        name, vector = f"%c{slot}x{lanes}", f"<{lanes} x {element}>"
        if name not in self.splats:
            self.splats.add(name)
            self.entry.append(f"  {name}a = insertelement {vector} poison, {element} %c{slot}, i64 0")
            zeros = f"<{lanes} x i32> zeroinitializer"
            self.entry.append(f"  {name} = shufflevector {vector} {name}a, {vector} poison, {zeros}")
        return Scalar(e.dtype, name)

    def _extent(self, loop: list[LoopVar]) -> str:
        """The turns of a loop, as a run-time integer."""
        size = 1
        for v in loop:
            size *= v.size
        return self.param(size)

    def operand(self, value: Any, offset: int) -> str:
        """The pointer to an element of a value's memory."""
        key = (id(value), offset)
        slot = self.operand_slots.get(key)
        if slot is None:
            slot = self.operand_slots[key] = len(self.operands)
            self.operands.append((value, offset))
            self.entry.append(f"  %bp{slot} = getelementptr ptr, ptr %buffers, i64 {slot}")
            self.entry.append(f"  %b{slot} = load ptr, ptr %bp{slot}, align 8")
        return f"%b{slot}"

    def eval(self, e: Expr, scope: Scope) -> Scalar:
        """The value of an expression (see `compiler.loops.evaluate`)."""
        raise NotImplementedError

    # ------------------------------------------------------------ dependencies

    def _var_key(self, v: LoopVar) -> int:
        known = self.loop_of.get(id(v))
        return id(known[0]) if known else 0

    def _lin_deps(self, position: Lin) -> frozenset:
        out: set = set()
        for atom, _ in position.terms:
            if type(atom) is LoopVar:
                out.add(self._var_key(atom))
            elif type(atom) is Dynamic:
                out |= self.deps(atom.expr)
            else:
                out |= self._lin_deps(atom.of)
        return frozenset(out)

    def deps(self, e: Expr) -> frozenset:
        """Loop variables and reductions an expression depends on."""
        if id(e) not in self.dependencies:
            for part in ordered([e], self.dependencies):
                self.dependencies[id(part)] = self._own_deps(part)
        return self.dependencies[id(e)]

    def _own_deps(self, e: Expr) -> frozenset:
        """What an expression depends on where that is known of its operands."""
        if e.op in ("load", "index"):
            return self._lin_deps(e.attr[1] if e.op == "load" else e.attr)
        if e.op == "acc":
            return frozenset({("acc", id(e.attr))}) | self._kept_vars()
        found = frozenset().union(*[self.dependencies[id(a)] for a in e.args])
        return found | self._lin_deps(e.attr[0]) if e.op == "choose" else found

    def _kept_vars(self) -> frozenset:
        axes = set(self.kernel.axes)
        return frozenset(self._var_key(v) for a, v in enumerate(self.kernel.variables) if a not in axes and v.size != 1)

    # ------------------------------------------------------------ positions

    def _coefficients(self, position: Lin) -> list[tuple[Any, int]]:
        """(atom, coefficient), one loop variable per collapsed loop."""
        out = []
        for atom, c in position.terms:
            if type(atom) is LoopVar:
                last, _ = self.loop_of[id(atom)]
                if atom is not last:
                    continue
            out.append((atom, c))
        return out

    def _scaled(self, b: Builder, name: str, c: int) -> str:
        if c == 1:
            return name
        return b.emit(f"mul i64 {name}, {self.param(c)}")

    def atom_value(self, atom: Any, scope: Scope) -> Scalar:
        """A quotient, remainder or run-time integer as int64; in all lanes where it differs between them."""
        if type(atom) is Dynamic:
            return self.eval(atom.expr, scope)
        x = self.int_value(atom.of, scope)
        lanes = scope.lanes if self._varies(self._lin_deps(atom.of), scope) else 1
        b = self.builder(lanes)
        by = self._splat(b, Scalar(INT64, self.param(atom.by)), lanes)
        return b.udiv(x, by) if type(atom) is Quotient else b.urem(x, by)

    def _varies(self, deps: frozenset, scope: Scope) -> bool:
        return scope.vector is not None and scope.vector in deps

    def _splat(self, b: Builder, x: Scalar, lanes: int) -> Scalar:
        return b.with_lanes(lanes).splat(x) if lanes > 1 else x

    def int_value(self, position: Lin, scope: Scope, dtype=INT64) -> Scalar:
        """An index as an integer: one value, or one per lane where it varies along the vectorized loop."""
        varies = self._varies(self._lin_deps(position), scope)
        lanes = scope.lanes if varies else 1
        one = self.builder(1)
        base = str(position.offset) if position.offset in (0, 1) else self.param(position.offset)
        vector_part: list[tuple[Scalar, int]] = []
        ramp = 0
        for atom, c in self._coefficients(position):
            if type(atom) is LoopVar:
                name = scope.variable(self._var_key(atom))
                if varies and self._var_key(atom) == scope.vector:
                    ramp = c
                term = self._scaled(one, name, c)
                base = term if base == "0" else one.emit(f"add i64 {base}, {term}")
                continue
            x = self.atom_value(atom, scope)
            deps = self.deps(atom.expr) if type(atom) is Dynamic else self._lin_deps(atom.of)
            if self._varies(deps, scope):
                vector_part.append((x, c))
            else:
                term = self._scaled(one, x.ir, c)
                base = term if base == "0" else one.emit(f"add i64 {base}, {term}")
        if not varies:
            out = Scalar(INT64, base)
            return out if dtype == INT64 else one.convert(out, dtype)
        b = self.builder(lanes)
        start = Scalar(INT64, base)
        if dtype != INT64:
            start = one.convert(start, dtype)
        total = b.splat(start)
        if ramp:
            steps = b.iota() if dtype == INT64 else b.convert(b.iota(), dtype)
            if ramp != 1:
                factor = Scalar(INT64, self.param(ramp))
                if dtype != INT64:
                    factor = one.convert(factor, dtype)
                steps = b.mul(steps, b.splat(factor))
            total = b.add(total, steps)
        for x, c in vector_part:
            x = x if dtype == INT64 else b.convert(x, dtype)
            if c != 1:
                factor = Scalar(INT64, self.param(c))
                if dtype != INT64:
                    factor = one.convert(factor, dtype)
                x = b.mul(x, b.splat(factor))
            total = b.add(total, x)
        return total

    def pointer(self, value: Any, position: Lin, scope: Scope) -> str:
        """Pointer to the first lane's element, without per-lane run-time parts; outer terms added in outer scopes."""
        terms = []
        for atom, c in self._coefficients(position):
            deps = (
                frozenset({self._var_key(atom)})
                if type(atom) is LoopVar
                else self.deps(atom.expr)
                if type(atom) is Dynamic
                else self._lin_deps(atom.of)
            )
            if type(atom) is not LoopVar and scope.lanes > 1 and self._varies(deps, scope):
                continue
            terms.append((atom, c, deps))
        anchor = self._anchor(value, position)
        if anchor == position.offset:
            return self._pointer_in(value, position, terms, scope, scope)
        base = self._pointer_in(value, Lin(anchor, position.terms), terms, scope, scope)
        b = self.builder(1)
        return b.emit(f"getelementptr {b._element(value.element)}, ptr {base}, i64 {position.offset - anchor}")

    def _anchor(self, value: Any, position: Lin) -> int:
        """The offset of a position that this one is reached from: of the first such near it, or its own."""
        _, terms = position.key
        known = self.anchors.setdefault((id(value), terms), [])
        for offset in known:
            if abs(offset - position.offset) <= NEAR:
                return offset
        known.append(position.offset)
        return position.offset

    def _pointer_in(self, value, position: Lin, terms, scope: Scope, at: Scope) -> str:
        """The address as far as `scope` knows its terms; the code goes to where `at` is, only there it is known."""
        here = [t for t in terms if not (scope.parent is not None and t[2] <= scope.parent.available)]
        outer = [t for t in terms if scope.parent is not None and t[2] <= scope.parent.available]
        if scope.parent is not None and not here:
            return self._pointer_in(value, position, outer, scope.parent, at)
        key = ("ptr", id(value), position.key, frozenset(atom_key(atom) for atom, _, _ in terms))
        found = at.lookup(key)
        if found is not None:
            return found
        base = (
            self._pointer_in(value, position, outer, scope.parent, at)
            if scope.parent
            else self.operand(value, position.offset)
        )
        b = self.builder(1)
        element = b._element(value.element)
        for atom, c, _ in here:
            name = scope.variable(self._var_key(atom)) if type(atom) is LoopVar else self.atom_value(atom, at).ir
            base = b.emit(f"getelementptr {element}, ptr {base}, i64 {self._scaled(b, name, c)}")
        at.known[key] = base
        return base

    def _vector_step(self, position: Lin, scope: Scope) -> tuple[int, list[tuple[Any, int]]]:
        """Step along the vectorized loop, and the parts of the position computed per lane."""
        step = 0
        parts = []
        for atom, c in self._coefficients(position):
            if type(atom) is LoopVar:
                if self._var_key(atom) == scope.vector:
                    step = c
            else:
                deps = self.deps(atom.expr) if type(atom) is Dynamic else self._lin_deps(atom.of)
                if self._varies(deps, scope):
                    parts.append((atom, c))
        return step, parts

    def _lane_offsets(self, position: Lin, scope: Scope, step: int, parts) -> Scalar:
        """Per-lane element offsets from `pointer`."""
        b = self.builder(scope.lanes)
        total = None
        if step and scope.lanes > 1:
            total = b.iota()
            if step != 1:
                total = b.mul(total, b.splat(Scalar(INT64, self.param(step))))
        for atom, c in parts:
            x = self.atom_value(atom, scope)
            if c != 1:
                x = b.mul(x, self._splat(b, Scalar(INT64, self.param(c)), scope.lanes))
            total = x if total is None else b.add(total, x)
        return total  # type: ignore[return-value]
