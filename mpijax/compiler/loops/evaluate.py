"""Expressions as vector instructions: loads, operations, stores, and what is computed before a loop."""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.compiler.fusion.depth import Shallow
from mpijax.compiler.fusion.expr import Expr, children, dynamic_parts
from mpijax.compiler.fusion.kernel import Kernel, Store
from mpijax.compiler.fusion.reductions import combining
from mpijax.compiler.loops.addresses import Scope
from mpijax.compiler.loops.schedule import NEAR, VECTOR_BYTES
from mpijax.compiler.loops.streaming import streams
from mpijax.compiler.loops.turned import Turned
from mpijax.core.index import Dynamic, Lin, LoopVar, linearized
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar

# Scatters into arrays of more bytes than this fetch the places that they write so many turns later.
PREFETCH_ABOVE = 1 << 19
PREFETCH_AHEAD = 24
# Rows of arrays of more bytes than this, which the second cache does not hold, are fetched one ahead.
PREFETCH_ROWS_ABOVE = 1 << 20
# At most so many results side by side are written as rows of their elements.
INTERLEAVED = 9
# Bytes of a cache line.
LINE = 64


class Evaluator(Turned):
    """Values of expressions, in one lane or in all."""

    def __init__(self, kernel: Kernel, name: str):
        super().__init__(kernel, name)
        self._evaluated = Shallow(self._evaluate)

    def eval(self, e: Expr, scope: Scope) -> Scalar:
        """The value of an expression: in all lanes if it varies along the vectorized loop, else one."""
        found = scope.lookup(id(e))
        return self._evaluated(e, scope) if found is None else found

    def _evaluate(self, e: Expr, scope: Scope) -> Scalar:
        column = self.columns.get(id(e))
        value = self._compute(e, scope, self.deps(e)) if column is None else column(scope)
        scope.known[id(e)] = value
        return value

    def vector(self, e: Expr, scope: Scope, lanes: int) -> Scalar:
        """The value of an expression in `lanes` lanes."""
        x = self.eval(e, scope)
        if lanes == 1 or self._varies(self.deps(e), scope):
            return x
        if id(e) in self.passed:
            return self.argument(e, lanes)
        found = scope.lookup(("splat", id(e), lanes))
        if found is None:
            found = self.builder(lanes).splat(x)
            scope.known[("splat", id(e), lanes)] = found
        return found

    def _compute(self, e: Expr, scope: Scope, deps: frozenset) -> Scalar:
        lanes = scope.lanes if self._varies(deps, scope) else 1
        if id(e) in self.passed:
            return self.argument(e, 1)
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
        if step and abs(step) <= NEAR:
            return b.load_steps(ptr, step, value.element)
        turned = self.turned_load(value, position, step, scope)
        if turned is not None:
            return turned
        return b.load_strided(ptr, self.param(step), value.element)

    def _accumulated(self, member: Any, scope: Scope) -> Scalar:
        found = self.acc_values[id(member)]
        return found(scope) if callable(found) else found

    def _inner_member(self, e: Expr, scope: Scope) -> Scalar:
        """An element another member of the kernel computed: from memory if an earlier pass stored it."""
        member = e.attr
        row = self.rows.get(id(member.value))
        if member.phase < self.phase and row is not None and scope.vector in scope.available:
            return self._load_row(row[1], e, scope)
        position = linearized(member.index, member.value.shape)
        # In a part where the element is the same everywhere it may be asked for outside of the loops.
        here = self._lin_deps(position) <= scope.available
        if member.phase < self.phase and here and id(member.value) in self.kernel.saved:
            load = Expr("load", (), member.value.element, (member.value, position))
            self.keepalive.append(load)
            return self._load(load, scope, scope.lanes if self._varies(self.deps(e), scope) else 1)
        return self.eval(e.args[0], scope)

    def _load_row(self, row: str, e: Expr, scope: Scope) -> Scalar:
        member = e.attr
        assert scope.vector is not None
        index = scope.variable(scope.vector)
        lanes = scope.lanes if self._varies(self.deps(e), scope) else 1
        b = self.builder(lanes)
        ptr = b.emit(f"getelementptr {b._element(member.value.element)}, ptr {row}, i64 {index}")
        return b.load(ptr, member.value.element)

    # ------------------------------------------------------------ hoisting

    def hoist(self, exprs: list[Expr], stores: list[Store], scope: Scope, inner_vector: int | None, lanes: int) -> None:
        """Before a loop: compute whatever its body needs that does not change in it."""
        seen: set[int] = set()

        def visit(root: Expr) -> None:
            # (expression, whether users want it in all lanes, whether its operands have been visited)
            stack = [(root, True, False)]
            while stack:
                e, wanted_in_vector, complete = stack.pop()
                if complete:
                    self._hoist_pointer(e.attr[0], e.attr[1], scope)
                elif self.deps(e) <= scope.available:
                    if e.op != "const":
                        self.eval(e, scope)
                        if wanted_in_vector and lanes > 1:
                            self.vector(e, scope, lanes)
                elif id(e) not in seen:
                    seen.add(id(e))
                    if e.op == "load":
                        stack.append((e, False, True))
                    varies = inner_vector is not None and inner_vector in self.deps(e)
                    wanted = varies and e.op not in ("load", "index")
                    stack += [(a, wanted, False) for a in reversed(children(e))]

        for e in exprs:
            visit(e)
        for s in stores:
            visit(s.expr)
            self._hoist_pointer(s.value, s.position, scope)

    def _hoist_pointer(self, value, position: Lin, scope: Scope) -> None:
        terms: list[tuple[LoopVar | Dynamic, int, frozenset[int]]] = []
        for atom, c in self._coefficients(position):
            if type(atom) is LoopVar:
                deps = frozenset({self._var_key(atom)})
                if deps <= scope.available:
                    terms.append((atom, c, deps))
            elif type(atom) is Dynamic:
                deps = self.deps(atom.expr)
                if deps <= scope.available and not self._varies(deps, scope):
                    terms.append((atom, c, deps))
        self._pointer_in(value, position, terms, scope, scope)

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
        elif step != 1:
            b.store_strided(ptr, self.param(step), x)
        elif streams(s, self.kernel, self.schedule) and lanes * s.value.element.itemsize >= VECTOR_BYTES:
            b.store_past_caches(ptr, x)
        else:
            b.store(ptr, x)

    def place_of_lanes(self, s: Store, scope: Scope) -> tuple[int, int] | None:
        """(step between lanes, offset of the first but for outer loops) of a store whose neighbours fill its gaps."""
        step, parts = self._vector_step(s.position, scope)
        terms = self._coefficients(s.position)
        written = {id(loop[-1]) for loop in self.schedule.written}
        if scope.lanes == 1 or parts or not 2 <= step <= INTERLEAVED or s.value.element.kind == "b":
            return None
        if any(type(atom) is not LoopVar for atom, _ in terms):
            return None
        keys = [(self._var_key(atom), c) for atom, c in terms]
        return step, s.position.offset + sum(c * int(scope.variable(key)) for key, c in keys if key in written)

    def store_interleaved(self, stores: list[tuple[Store, Scope]]) -> None:
        """Stores as many elements apart as there are of them, from the first on: whole registers of neighbours."""
        first, scope = stores[0]
        b, element = self.builder(scope.lanes), first.value.element
        xs = [self.vector(s.expr, at, scope.lanes) for s, at in stores]
        ptr = self.pointer(first.value, first.position, scope)
        for k, x in enumerate(b.interleaved(xs)):
            at = b.emit(f"getelementptr {b._element(element)}, ptr {ptr}, i64 {k * scope.lanes}") if k else ptr
            b.store(at, x)

    def _ordered_store(self, s: Store, b: Builder, ptr: str, x: Scalar, scope: Scope) -> None:
        """A scatter's write: only where the guard holds, combined with what is there."""
        skip = self.label("skip")
        if b.lanes == 1 and scope.vector is not None and s.value.nbytes > PREFETCH_ABOVE:
            self._prefetch(s, scope)
        if s.guard is not None:
            ok, then = self.eval(s.guard, scope), self.label("then")
            self.emit(f"br i1 {ok.ir}, label %{then}, label %{skip}")
            self.lines.append(f"{then}:")
            self.block = then
        if s.combine is not None:
            x = self._combined(s.combine, b, b.load(ptr, s.value.element), x)
        b.store(ptr, x)
        if s.guard is not None:
            self.emit(f"br label %{skip}")
            self.lines.append(f"{skip}:")
            self.block = skip

    def _combined(self, operation: str, b: Builder, old: Scalar, x: Scalar) -> Scalar:
        """What a scatter writes."""
        if b.lanes == 1 and operation in ("max", "min") and x.dtype in (np.float32, np.float64):
            return b.extremum_without_branches("gt" if operation == "max" else "lt", old, x)
        return combining(operation).lower.rule(b, old, x)

    def _prefetch(self, s: Store, scope: Scope) -> None:
        """Fetch what is written some turns later, whose place no processor can guess; at the end, the last one's."""
        loop = self.schedule.vector_loop
        vector = scope.vector
        if vector is None or vector not in self._lin_deps(s.position) or loop is None or not dynamic_parts(s.position):
            return
        one = self.builder(1)
        last = one.emit(f"sub i64 {self._extent(loop)}, 1")
        ahead = one.emit(f"add i64 {scope.variable(vector)}, {PREFETCH_AHEAD}")
        inside = one.emit(f"icmp slt i64 {ahead}, {last}")
        at = one.emit(f"select i1 {inside}, i64 {ahead}, i64 {last}")
        later = Scope(scope.parent, {vector: at}, vector, 1)
        self._fetch(self.pointer(s.value, s.position, later), writes=True)

    def _fetch(self, ptr: str, *, writes: bool = False) -> None:
        self.text.declares.add("declare void @llvm.prefetch.p0(ptr, i32, i32, i32)")
        self.emit(f"call void @llvm.prefetch.p0(ptr {ptr}, i32 {int(writes)}, i32 3, i32 1)")

    def fetch_next_row(self, scope: Scope) -> None:
        """In the second pass over a row, which finds it in the cache: fetch what the first pass reads of the next one.

        Processors guess which lines come next inside a page of memory only, and rows are often pages.
        """
        if not self.schedule.outer:
            return
        outer = id(self.schedule.outer[-1][-1])
        for value, position in self.kernel.reads_of_first_pass():
            if value.nbytes <= PREFETCH_ROWS_ABOVE or any(type(atom) is not LoopVar for atom, _ in position.terms):
                continue
            steps = {self._var_key(atom): c for atom, c in self._coefficients(position)}
            if scope.vector is None or steps.get(scope.vector) != 1 or outer not in steps:
                continue
            b = self.builder(1)
            step = f"getelementptr {b._element(value.element)}, ptr"
            ptr = b.emit(f"{step} {self.pointer(value, position, scope)}, i64 {self.param(steps[outer])}")
            for at in range(0, scope.lanes, LINE // value.element.itemsize):
                self._fetch(b.emit(f"{step} {ptr}, i64 {at}") if at else ptr)
