"""From a kernel to LLVM IR: loops as text around the scalar layer's vector instructions.

The function is `void name(ptr buffers, ptr params, i64 begin, i64 end)`: `buffers` holds a pointer per
operand, `params` the sizes and strides, so that one function serves all sizes; `[begin, end)` is the part
of the outermost loop to run, so that threads can share a kernel.

One loop is vectorized: W elements at a time, then the rest one by one. Which one decides the
strategy:
- `across`: a kept axis; reductions run serially inside, one per lane. Plain maps are the case without reductions.
- `along`: a reduced axis; lanes hold partial results, combined at the end of the row.
- `tiled`: a kept axis with long reductions; partial results of a tile of it stay in a small array.
- `blocked`: a map that reads an operand across its rows; in tiles (see `compiler.blocked`).

Values that do not change in a loop are computed before it (`Scope.hoist`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.compiler.blocked import TILE as TILE_EDGE
from mpijax.compiler.blocked import stage_tile
from mpijax.compiler.expr import Expr
from mpijax.compiler.groups import children
from mpijax.compiler.index import Dynamic, Lin, LoopVar, Quotient, atom_key
from mpijax.compiler.kernel import Kernel, Reduce, Store
from mpijax.compiler.reductions import combining, identity
from mpijax.compiler.schedule import Schedule
from mpijax.scalar.builder import Builder, FunctionText
from mpijax.scalar.types import Scalar

INT64 = np.dtype(np.int64)

TILE = 1024


class Params:
    """Run-time integers of a kernel; each distinct one is a slot."""

    def __init__(self):
        self.values: list[int] = []
        self.slots: dict[int, int] = {}

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
        self.vector = vector if vector is not None else (parent.vector if parent else None)
        self.lanes = lanes if vector is not None else (parent.lanes if parent else 1)
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


class Emitter:
    """Emits one kernel."""

    def __init__(self, kernel: Kernel, name: str):
        self.kernel = kernel
        self.name = name
        self.text = FunctionText()
        self.lines: list[str] = []
        self.entry: list[str] = []
        self.params = Params()
        self.operands: list[tuple[Any, int]] = []
        self.operand_slots: dict[tuple[int, int], int] = {}
        self.block = "entry"
        self.blocks = 0
        self.schedule = Schedule(kernel)
        self.dependencies: dict[int, frozenset] = {}
        self.loop_of: dict[int, tuple[LoopVar, list[LoopVar]]] = {}
        for loop in self.schedule.loops:
            for v in loop:
                self.loop_of[id(v)] = (loop[-1], loop)
        self.acc_values: dict[int, Any] = {}
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
        if not any(line.startswith(f"  {name} =") for line in self.entry):
            self.entry.append(f"  %pp{slot} = getelementptr i64, ptr %params, i64 {slot}")
            self.entry.append(f"  {name} = load i64, ptr %pp{slot}, align 8")
        return name

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
        found = self.dependencies.get(id(e))
        if found is None:
            if e.op in ("load", "index"):
                found = self._lin_deps(e.attr[1] if e.op == "load" else e.attr)
            elif e.op == "acc":
                found = frozenset({("acc", id(e.attr))}) | self._kept_vars()
            else:
                found = frozenset().union(*(self.deps(a) for a in children(e))) if e.args else frozenset()
            self.dependencies[id(e)] = found
        return found

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
        return self._pointer_in(value, position, terms, scope, scope)

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

    # ------------------------------------------------------------ expressions

    def eval(self, e: Expr, scope: Scope) -> Scalar:
        """The value of an expression: in all lanes if it varies along the vectorized loop, else one."""
        found = scope.lookup(id(e))
        if found is not None:
            return found
        target = scope
        deps = self.deps(e)
        value = self._compute(e, scope, deps)
        target.known[id(e)] = value
        return value

    def vector(self, e: Expr, scope: Scope, lanes: int) -> Scalar:
        """The value of an expression in `lanes` lanes."""
        x = self.eval(e, scope)
        if lanes == 1 or self._varies(self.deps(e), scope):
            return x
        found = scope.lookup(("splat", id(e), lanes))
        if found is None:
            found = self.builder(lanes).splat(x)
            scope.known[("splat", id(e), lanes)] = found
        return found

    def _compute(self, e: Expr, scope: Scope, deps: frozenset) -> Scalar:
        lanes = scope.lanes if self._varies(deps, scope) else 1
        if e.op == "const":
            return self.builder(1).const(e.attr, e.dtype)
        if e.op == "index":
            return self.int_value(e.attr, scope, e.dtype)
        if e.op == "load":
            return self._load(e, scope, lanes)
        if e.op == "acc":
            return self._accumulated(e.attr, scope)
        if e.op == "inner":
            return self._inner_member(e, scope)
        primitive, params, result = e.attr
        key = ("op", primitive.name, tuple(map(id, e.args)), id(params) if params else 0)
        outs = scope.lookup(key) if result else None
        if outs is None:
            b = self.builder(lanes)
            args = [self.vector(a, scope, lanes) for a in e.args]
            outs = primitive.lower.rule(b, *args, **params)
            if primitive.multiple_results:
                scope.known[key] = outs
        return outs[result] if isinstance(outs, (tuple, list)) else outs

    def _load(self, e: Expr, scope: Scope, lanes: int) -> Scalar:
        value, position = e.attr
        b = self.builder(lanes)
        if lanes == 1:
            return b.load(self.pointer(value, position, scope), value.element)
        step, parts = self._vector_step(position, scope)
        ptr = self.pointer(value, position, scope)
        if parts:
            return b.load_gather(ptr, self._lane_offsets(position, scope, step, parts), value.element)
        if step == 1:
            return b.load(ptr, value.element)
        return b.load_strided(ptr, self.param(step), value.element)

    def _accumulated(self, member: Any, scope: Scope) -> Scalar:
        found = self.acc_values[id(member)]
        return found(scope) if callable(found) else found

    def _inner_member(self, e: Expr, scope: Scope) -> Scalar:
        """An element another member of the kernel computed: from memory if an earlier pass stored it."""
        member = e.attr
        row = self.rows.get(id(member.value))
        if member.phase < self.phase and row is not None:
            return self._load_row(row[1], member, scope)
        if member.phase < self.phase and id(member.value) in self.kernel.saved:
            from mpijax.compiler.index import linearized

            position = linearized(member.index, member.value.shape)
            load = Expr("load", (), member.value.element, (member.value, position))
            self.keepalive.append(load)
            return self._load(load, scope, scope.lanes if self._varies(self.deps(e), scope) else 1)
        return self.eval(e.args[0], scope)

    def _load_row(self, row: str, member, scope: Scope) -> Scalar:
        index = scope.variable(scope.vector) if scope.vector in scope.available else "0"
        lanes = scope.lanes if self._varies(self.deps(member.expr), scope) else 1
        b = self.builder(lanes)
        ptr = b.emit(f"getelementptr {b._element(member.value.element)}, ptr {row}, i64 {index}")
        return b.load(ptr, member.value.element)

    # ------------------------------------------------------------ hoisting

    def hoist(self, exprs: list[Expr], stores: list[Store], scope: Scope, inner_vector: int | None, lanes: int) -> None:
        """Before a loop: compute whatever its body needs that does not change in it."""
        seen: set[int] = set()

        def visit(e: Expr, wanted_in_vector: bool) -> None:
            free = self.deps(e) <= scope.available
            if free:
                if e.op != "const":
                    self.eval(e, scope)
                    if wanted_in_vector and lanes > 1:
                        self.vector(e, scope, lanes)
                return
            if id(e) in seen:
                return
            seen.add(id(e))
            varies = inner_vector is not None and inner_vector in self.deps(e)
            for a in children(e):
                visit(a, varies and e.op not in ("load", "index"))
            if e.op == "load":
                self._hoist_pointer(e.attr[0], e.attr[1], scope)

        for e in exprs:
            visit(e, True)
        for s in stores:
            visit(s.expr, True)
            self._hoist_pointer(s.value, s.position, scope)

    def _hoist_pointer(self, value, position: Lin, scope: Scope) -> None:
        terms = []
        for atom, c in self._coefficients(position):
            if type(atom) is LoopVar:
                deps = frozenset({self._var_key(atom)})
                if deps <= scope.available:
                    terms.append((atom, c, deps))
        self._pointer_in(value, position, terms, scope, scope)

    # ------------------------------------------------------------ loops

    def loop(
        self,
        lo: str,
        hi: str,
        step: int,
        carried: list[Scalar],
        lanes_of: list[int],
        body: Callable[[str, list[Scalar]], list[Scalar]],
    ) -> list[Scalar]:
        """`for i in range(lo, hi, step)` with values carried from turn to turn; returns their last values."""
        head, exit_, before = self.label("loop"), self.label("done"), self.block
        b = self.builder(1)
        enter = b.emit(f"icmp slt i64 {lo}, {hi}")
        self.emit(f"br i1 {enter}, label %{head}, label %{exit_}")
        self.lines.append(f"{head}:")
        self.block = head
        index = self.text.fresh()
        phis = [self._phi_names(c) for c in carried]
        at = len(self.lines)
        inside = [
            Scalar(c.dtype, n[0], None if c.imag is None else Scalar(c.imag.dtype, n[1]))
            for c, n in zip(carried, phis, strict=True)
        ]
        after = body(index, inside)
        nxt = b.emit(f"add nsw i64 {index}, {step}")
        again = b.emit(f"icmp slt i64 {nxt}, {hi}")
        self.emit(f"br i1 {again}, label %{head}, label %{exit_}")
        latch = self.block
        head_phis = [f"  {index} = phi i64 [ {lo}, %{before} ], [ {nxt}, %{latch} ]"]
        for c, n, a, w in zip(carried, phis, after, lanes_of, strict=True):
            head_phis += self._phi_lines(n, c, before, a, latch, w)
        self.lines[at:at] = head_phis
        self.lines.append(f"{exit_}:")
        self.block = exit_
        results = []
        for c, a, w in zip(carried, after, lanes_of, strict=True):
            names = self._phi_names(c)
            self.lines += self._phi_lines(names, c, before, a, latch, w)
            results.append(Scalar(c.dtype, names[0], None if c.imag is None else Scalar(c.imag.dtype, names[1])))
        return results

    def _phi_names(self, c: Scalar) -> tuple[str, str]:
        return self.text.fresh(), self.text.fresh()

    def _phi_lines(self, names, first: Scalar, before: str, later: Scalar, latch: str, lanes: int) -> list[str]:
        t = self.builder(lanes).type(first.dtype)
        lines = [f"  {names[0]} = phi {t} [ {first.ir}, %{before} ], [ {later.ir}, %{latch} ]"]
        if first.imag is not None:
            lines.append(f"  {names[1]} = phi {t} [ {first.imag.ir}, %{before} ], [ {later.imag.ir}, %{latch} ]")
        return lines

    def vector_bounds(self, lo: str, hi: str, lanes: int) -> str:
        """Where the vector part of a loop over [lo, hi) ends."""
        b = self.builder(1)
        n = b.emit(f"sub i64 {hi}, {lo}")
        rest = b.emit(f"and i64 {n}, {lanes - 1}")
        return b.emit(f"sub i64 {hi}, {rest}")

    # ------------------------------------------------------------ the function

    def function(self) -> str:
        """The text of the function; declarations and helpers it needs are in `self.text`."""
        self.phase = 0
        self.keepalive: list[Expr] = []
        top = Scope(None, {})
        self._outer_loops(self.schedule.outer, 0, top)
        body = [
            f"define void @{self.name}(ptr %buffers, ptr %params, i64 %begin, i64 %end) {{", "entry:", *self.entry,
            "  br label %start", "start:", *self.lines, "  ret void", "}",
        ]  # fmt: skip
        return "\n".join(body).replace("%entry ]", "%start ]") + "\n"

    def _extent(self, loop: list[LoopVar]) -> str:
        size = 1
        for v in loop:
            size *= v.size
        return self.param(size)

    def _range(self, loop: list[LoopVar], outermost: bool) -> tuple[str, str]:
        return ("%begin", "%end") if outermost else ("0", self._extent(loop))

    def _outer_loops(self, loops: list[list[LoopVar]], depth: int, scope: Scope) -> None:
        if depth == len(loops):
            getattr(self, "_" + self.schedule.strategy)(scope, depth == 0)
            return
        lo, hi = self._range(loops[depth], depth == 0)
        self.hoist(
            self.kernel.roots(),
            self.kernel.inner + self.kernel.outer,
            scope,
            self.schedule.vector_id,
            self.schedule.lanes,
        )

        def body(i: str, _):
            inner = Scope(scope, {id(loops[depth][-1]): i})
            self._outer_loops(loops, depth + 1, inner)
            return []

        self.loop(lo, hi, 1, [], [], body)

    # ------------------------------------------------------------ strategy: across

    def _across(self, scope: Scope, outermost: bool) -> None:
        """A kept axis is vectorized; reductions run inside, one per lane."""
        loop = self.schedule.vector_loop
        if loop is None:
            self._reduce_and_store(Scope(scope, {}))
            return
        lo, hi = self._range(loop, outermost)
        key = id(loop[-1])
        lanes = self.schedule.lanes
        self.hoist(self.kernel.roots(), self.kernel.inner + self.kernel.outer, scope, key, lanes)
        if not outermost and self.schedule.whole_vectors():
            for at in range(0, self.schedule.vector_size, lanes):
                self._reduce_and_store(Scope(scope, {key: str(at)}, key, lanes))
            return
        start = lo
        for width in self.schedule.widths:
            end = hi if width == 1 else self.vector_bounds(start, hi, width)

            def body(i: str, _, width=width):
                self._reduce_and_store(Scope(scope, {key: i}, key, width))
                return []

            self.loop(start, end, width, [], [], body)
            start = end

    def _reduce_and_store(self, scope: Scope) -> None:
        """All phases of reductions inside one (vector of) kept position(s), then the stores."""
        kernel = self.kernel
        for phase in range(kernel.phases):
            self.phase = phase
            reduces = [r for r in kernel.reduces if r.phase == phase]
            stores = [s for s in kernel.inner if s.phase == phase]
            self._serial_reduction(reduces, stores, scope)
        self.phase = kernel.phases + 1
        for s in kernel.outer:
            self.store(s, scope)

    def _serial_reduction(self, reduces: list[Reduce], stores: list[Store], scope: Scope) -> None:
        if not self.schedule.inner:
            if reduces:
                for r in reduces:
                    self.acc_values[id(r.member)] = self.vector(r.expr, scope, scope.lanes)
            for s in stores:
                self.eval(s.expr, scope)
            for s in stores:
                self.store(s, scope)
            return
        b = self.builder(scope.lanes)
        first = [b.const(identity(r.op, r.dtype), r.dtype) for r in reduces]

        def nest(depth: int, scope: Scope, accs: list[Scalar]) -> list[Scalar]:
            if depth == len(self.schedule.inner):
                new = []
                for r, acc in zip(reduces, accs, strict=True):
                    x = self.vector(r.expr, scope, scope.lanes)
                    new.append(combining(r.op).lower.rule(self.builder(scope.lanes), acc, x))
                for s in stores:
                    self.store(s, scope)
                return new
            loop = self.schedule.inner[depth]
            self.hoist([r.expr for r in reduces], stores, scope, scope.vector, scope.lanes)

            def body(i: str, carried: list[Scalar]) -> list[Scalar]:
                return nest(depth + 1, Scope(scope, {id(loop[-1]): i}), carried)

            turns = self.schedule.unrolled(depth)
            if turns:
                for i in range(turns):
                    accs = body(str(i), accs)
                return accs
            return self.loop("0", self._extent(loop), 1, accs, [scope.lanes] * len(accs), body)

        done = nest(0, scope, first)
        for r, acc in zip(reduces, done, strict=True):
            self.acc_values[id(r.member)] = acc
            scope.available |= {("acc", id(r.member))}

    # ------------------------------------------------------------ strategy: along

    def _along(self, scope: Scope, outermost: bool) -> None:
        """The innermost reduced axis is vectorized; lanes are combined at the end."""
        kernel = self.kernel
        for phase in range(kernel.phases):
            self.phase = phase
            reduces = [r for r in kernel.reduces if r.phase == phase]
            stores = [s for s in kernel.inner if s.phase == phase]
            rows = [(m, name) for m, name in self.rows.values() if m.phase == phase]
            self._row_pass(reduces, stores, rows, scope)
        self.phase = kernel.phases + 1
        for s in kernel.outer:
            self.store(s, scope)

    def _row_pass(self, reduces, stores, rows, scope: Scope) -> None:
        lanes = self.schedule.pass_lanes(self.phase)
        wide, one = self.builder(lanes), self.builder(1)
        accs = [wide.const(identity(r.op, r.dtype), r.dtype) for r in reduces]
        accs += [one.const(identity(r.op, r.dtype), r.dtype) for r in reduces]
        n = len(reduces)
        widths = [lanes] * n + [1] * n

        def element(scope: Scope, carried: list[Scalar], lanes: int) -> list[Scalar]:
            out = []
            for r, acc in zip(reduces, carried, strict=True):
                x = self.vector(r.expr, scope, lanes)
                out.append(combining(r.op).lower.rule(self.builder(lanes), acc, x))
            for s in stores:
                self.store(s, scope)
            for member, row in rows:
                b = self.builder(lanes)
                x = self.vector(member.expr, scope, lanes)
                ptr = b.emit(f"getelementptr {b._element(x.dtype)}, ptr {row}, i64 {scope.variable(scope.vector)}")
                b.store(ptr, x)
            return out

        exprs = [r.expr for r in reduces] + [m.expr for m, _ in rows]

        def nest(depth: int, scope: Scope, carried: list[Scalar]) -> list[Scalar]:
            loop = self.schedule.inner[depth]
            key = id(loop[-1])
            last = depth == len(self.schedule.inner) - 1
            self.hoist(exprs, stores, scope, self.schedule.vector_id, lanes)
            if not last:

                def body(i, c):
                    return nest(depth + 1, Scope(scope, {key: i}), c)

                return self.loop("0", self._extent(loop), 1, carried, widths, body)
            hi = self._extent(loop)
            mid = self.vector_bounds("0", hi, lanes)
            vec = self.loop(
                "0",
                mid,
                lanes,
                carried[:n],
                [lanes] * n,
                lambda i, c: element(Scope(scope, {key: i}, key, lanes), c, lanes),
            )
            rest = self.loop(
                mid, hi, 1, carried[n:], [1] * n, lambda i, c: element(Scope(scope, {key: i}, key, 1), c, 1)
            )
            return vec + rest

        done = nest(0, scope, accs)
        for k, r in enumerate(reduces):
            rule = combining(r.op).lower.rule
            total = wide.reduce(rule, done[k])
            self.acc_values[id(r.member)] = rule(one, total, done[n + k])
            scope.available |= {("acc", id(r.member))}

    # ------------------------------------------------------------ strategy: tiled

    def _tiled(self, scope: Scope, outermost: bool) -> None:
        """A kept axis in tiles; the partial results of a tile stay in an array on the stack."""
        loop = self.schedule.vector_loop
        key = id(loop[-1])
        lo, hi = self._range(loop, outermost)
        kernel = self.kernel
        one = self.builder(1)
        arrays = {}
        for r in kernel.reduces:
            name = self.text.fresh()
            element = one._element(r.dtype)
            self.entry.append(f"  {name} = alloca {element}, i64 {TILE}, align 64")
            arrays[id(r.member)] = name
        self.hoist(kernel.roots(), kernel.inner + kernel.outer, scope, key, self.schedule.lanes)

        def tile(start: str, _):
            stop = one.emit(f"add i64 {start}, {TILE}")
            low = one.emit(f"icmp slt i64 {stop}, {hi}")
            stop = one.emit(f"select i1 {low}, i64 {stop}, i64 {hi}")
            tile_scope = Scope(scope, {})

            def acc_pointer(member, scope: Scope) -> str:
                b = self.builder(1)
                at = b.emit(f"sub i64 {scope.variable(key)}, {start}")
                return b.emit(f"getelementptr {b._element(member.value.element)}, ptr {arrays[id(member)]}, i64 {at}")

            def read(member):
                def load(scope: Scope) -> Scalar:
                    return self.builder(scope.lanes).load(acc_pointer(member, scope), member.value.element)

                return load

            def sweep(scope: Scope, body) -> None:
                at = start
                for width in self.schedule.widths:
                    end = stop if width == 1 else self.vector_bounds(at, stop, width)

                    def turn(i, _, width=width):
                        body(Scope(scope, {key: i}, key, width))
                        return []

                    self.loop(at, end, width, [], [], turn)
                    at = end

            for phase in range(kernel.phases):
                self.phase = phase
                reduces = [r for r in kernel.reduces if r.phase == phase]
                stores = [s for s in kernel.inner if s.phase == phase]

                def clear(scope, reduces=reduces):
                    for r in reduces:
                        b = self.builder(scope.lanes)
                        b.store(acc_pointer(r.member, scope), b.const(identity(r.op, r.dtype), r.dtype))

                if reduces:
                    sweep(tile_scope, clear)

                def combine(scope, reduces=reduces, stores=stores):
                    for r in reduces:
                        b = self.builder(scope.lanes)
                        ptr = acc_pointer(r.member, scope)
                        x = self.vector(r.expr, scope, scope.lanes)
                        b.store(ptr, combining(r.op).lower.rule(b, b.load(ptr, r.dtype), x))
                    for s in stores:
                        self.store(s, scope)

                def nest(depth: int, scope: Scope, combine=combine, reduces=reduces, stores=stores) -> None:
                    if depth == len(self.schedule.inner):
                        self.hoist([r.expr for r in reduces], stores, scope, key, self.schedule.lanes)
                        sweep(scope, combine)
                        return
                    inner = self.schedule.inner[depth]
                    self.hoist([r.expr for r in reduces], stores, scope, key, self.schedule.lanes)

                    def body(i, _):
                        nest(depth + 1, Scope(scope, {id(inner[-1]): i}))
                        return []

                    self.loop("0", self._extent(inner), 1, [], [], body)

                nest(0, tile_scope)
                for r in reduces:
                    self.acc_values[id(r.member)] = read(r.member)
                    tile_scope.available |= {("acc", id(r.member))}
            self.phase = kernel.phases + 1

            def finish(scope):
                for s in kernel.outer:
                    self.store(s, scope)

            sweep(tile_scope, finish)
            return []

        self.loop(lo, hi, TILE, [], [], tile)

    # ------------------------------------------------------------ strategy: blocked

    def _blocked(self, scope: Scope, outermost: bool) -> None:
        """Whole tiles with staged operands, then the edges without."""
        schedule, kernel = self.schedule, self.kernel
        rows, columns = schedule.tile_loop, schedule.vector_loop
        row_key, column_key = id(rows[-1]), id(columns[-1])
        lo, hi = self._range(rows, outermost)
        end = self._extent(columns)
        row_mid, column_mid = self.vector_bounds(lo, hi, TILE_EDGE), self.vector_bounds("0", end, TILE_EDGE)
        one = self.builder(1)
        tiles = {}
        for e in schedule.staged:
            name = self.text.fresh()
            element = one._element(e.attr[0].element)
            self.entry.append(f"  {name} = alloca {element}, i64 {TILE_EDGE * TILE_EDGE}, align 64")
            tiles[id(e)] = name
        self.hoist(kernel.roots(), kernel.inner + kernel.outer, scope, column_key, schedule.lanes)
        lanes = min(schedule.lanes, TILE_EDGE)

        def tile(row: str, column: str) -> None:
            corner = Scope(scope, {row_key: row, column_key: column})
            for e in schedule.staged:
                value, position = e.attr
                step = {id(a): c for a, c in position.terms}[column_key]
                stage_tile(self, e, tiles[id(e)], self.pointer(value, position, corner), self.param(step))
            row_end = one.emit(f"add i64 {row}, {TILE_EDGE}")

            def line(i: str, _):
                at = one.emit(f"sub i64 {i}, {row}")
                base = one.emit(f"mul i64 {at}, {TILE_EDGE}")
                for part in range(0, TILE_EDGE, lanes):
                    j = column if part == 0 else one.emit(f"add i64 {column}, {part}")
                    inner = Scope(Scope(scope, {row_key: i}), {column_key: j}, column_key, lanes)
                    offset = base if part == 0 else one.emit(f"add i64 {base}, {part}")
                    for e in schedule.staged:
                        b = self.builder(lanes)
                        dtype = e.attr[0].element
                        ptr = b.emit(f"getelementptr {b._element(dtype)}, ptr {tiles[id(e)]}, i64 {offset}")
                        inner.known[id(e)] = b.load(ptr, dtype)
                    self._reduce_and_store(inner)
                return []

            self.loop(row, row_end, 1, [], [], line)

        def tile_row(row: str, _):
            def each(column: str, _):
                tile(row, column)
                return []

            self.loop("0", column_mid, TILE_EDGE, [], [], each)
            return []

        self.loop(lo, row_mid, TILE_EDGE, [], [], tile_row)
        # The edges: columns that fill no tile, then rows that fill none.
        for row_from, row_to, column_from in ((lo, row_mid, column_mid), (row_mid, hi, "0")):

            def edge(i: str, _, column_from=column_from):
                row_scope = Scope(scope, {row_key: i})

                def cell(j: str, _):
                    self._reduce_and_store(Scope(row_scope, {column_key: j}))
                    return []

                self.loop(column_from, end, 1, [], [], cell)
                return []

            self.loop(row_from, row_to, 1, [], [], edge)

    # ------------------------------------------------------------ stores

    def store(self, s: Store, scope: Scope) -> None:
        lanes = scope.lanes
        vector_dep = self._varies(self._lin_deps(s.position) | self.deps(s.expr), scope)
        lanes = lanes if vector_dep else 1
        b = self.builder(lanes)
        x = self.vector(s.expr, scope, lanes)
        ptr = self.pointer(s.value, s.position, scope)
        if self.kernel.ordered:
            self._ordered_store(s, b, ptr, x, scope)
            return
        if lanes == 1:
            b.store(ptr, x)
            return
        step, parts = self._vector_step(s.position, scope)
        if parts:
            b.store_scatter(ptr, self._lane_offsets(s.position, scope, step, parts), x)
        elif step == 1:
            b.store(ptr, x)
        else:
            b.store_strided(ptr, self.param(step), x)

    def _ordered_store(self, s: Store, b: Builder, ptr: str, x: Scalar, scope: Scope) -> None:
        """A scatter's write: only where the guard holds, combined with what is there."""
        skip = self.label("skip")
        if s.guard is not None:
            ok, then = self.eval(s.guard, scope), self.label("then")
            self.emit(f"br i1 {ok.ir}, label %{then}, label %{skip}")
            self.lines.append(f"{then}:")
            self.block = then
        if s.combine is not None:
            x = combining(s.combine).lower.rule(b, b.load(ptr, s.value.element), x)
        b.store(ptr, x)
        if s.guard is not None:
            self.emit(f"br label %{skip}")
            self.lines.append(f"{skip}:")
            self.block = skip
