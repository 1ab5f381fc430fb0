"""Emits expressions as vector instructions: loads, operations, hoisted values, and reductions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import numpy as np

from mpijax.compiler.fusion.expr import (
    Applied,
    Expr,
    IndexValue,
    KnownNumber,
    Load,
    MemberValue,
    ReducedValue,
    children,
)
from mpijax.compiler.fusion.kernel import Kernel, KernelStore, Reduce
from mpijax.compiler.fusion.reductions import rule_of, zero_has_no_sign
from mpijax.compiler.graph.nodes import Value
from mpijax.compiler.loops.addresses import hoist_pointer, int_value, lane_offsets, pointer, vector_step
from mpijax.compiler.loops.schedule import NEAR
from mpijax.compiler.loops.scope import Scope
from mpijax.compiler.loops.turned import turned_load
from mpijax.core.rules.lowering import Combiner
from mpijax.core.shapes.index import Lin, LoopVar, linearized
from mpijax.scalar.builder import Builder
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.loops.nest import LoopNest

Rule = Callable[[Builder, Scalar, Scalar], Scalar]


def evaluated(nest: LoopNest, e: Expr, scope: Scope) -> Scalar:
    """Compute an expression in a scope, which caches it."""
    value = scope.known[e] = _computed(nest, e, scope)
    return value


def _computed(nest: LoopNest, e: Expr, scope: Scope) -> Scalar:
    lanes = scope.lanes if nest.varies(nest.needs.of(e), scope) else 1
    if isinstance(e, Applied):
        return _applied(nest, e, scope, lanes)
    if isinstance(e, KnownNumber):
        if e in nest.function.passed:
            return nest.function.argument(e, 1)
        return nest.function.builder(1).const(e.scalar, e.dtype)
    if isinstance(e, IndexValue):
        return int_value(nest, e.position, scope, e.dtype)
    if isinstance(e, Load):
        return _load(nest, e.value, e.position, scope, lanes)
    if isinstance(e, ReducedValue):
        found = scope.lookup(e.member)
        return found if type(found) is Scalar else found(scope)
    assert isinstance(e, MemberValue), e  # choices are made before
    return _inner_member(nest, e, scope)


def _applied(nest: LoopNest, e: Applied, scope: Scope, lanes: int) -> Scalar:
    """The result of an operation; an operation with several results is computed once."""
    primitive, params, result = e.primitive, e.params, e.result
    key = (primitive, e.args, id(params) if params else 0)
    outs = scope.lookup(key) if result else None
    if outs is None:
        args = [nest.vector(a, scope, lanes) for a in e.args]
        outs = nest.calls.apply(nest.function.builder(lanes), primitive, args, params)
        if primitive.multiple_results:
            scope.known[key] = outs
    return outs[result] if isinstance(outs, (tuple, list)) else outs


def _load(nest: LoopNest, value: Value, position: Lin, scope: Scope, lanes: int) -> Scalar:
    b = nest.function.builder(lanes)
    if lanes == 1:
        return b.load(pointer(nest, value, position, scope), value.element)
    step, parts = vector_step(nest, position, scope)
    ptr = pointer(nest, value, position, scope)
    if parts:
        return b.load_gather(ptr, lane_offsets(nest, scope, step, parts), value.element)
    if step and abs(step) <= NEAR:
        return b.load_steps(ptr, step, value.element)
    turned = turned_load(nest, value, position, step, scope)
    return b.load_strided(ptr, nest.function.param(step), value.element) if turned is None else turned


def _inner_member(nest: LoopNest, e: MemberValue, scope: Scope) -> Scalar:
    """An element that another member of the kernel computes; loaded if an earlier pass stored it."""
    member, value = e.member, e.member.value
    if member.phase < scope.phase:
        row = nest.rows.get(value)
        if row is not None and scope.vector in scope.available:
            assert scope.vector is not None
            lanes = scope.lanes if nest.varies(nest.needs.of(e), scope) else 1
            at = nest.function.element(row[1], value.element, scope.variable(scope.vector))
            return nest.function.builder(lanes).load(at, value.element)
        position = linearized(member.index, value.shape)
        needs = nest.needs.of_position(position)
        varies = nest.varies(nest.needs.of(e), scope)
        # In a part where the element is constant, it may be needed outside of the loops. If it is the same in all lanes
        # (a broadcast row), it is recomputed once, because loading it would read each lane's position.
        if needs <= scope.available and value in nest.kernel.saved and varies == nest.varies(needs, scope):
            return _load(nest, value, position, scope, scope.lanes if varies else 1)
    return nest.eval(e.args[0], scope)


def hoist(
    nest: LoopNest,
    exprs: Iterable[Expr],
    stores: Iterable[KernelStore],
    scope: Scope,
    inner_vector: LoopVar | None,
    lanes: int,
) -> None:
    """Before a loop: compute every loop-invariant value that its body needs."""
    seen: set[Expr] = set()

    def visit(root: Expr) -> None:
        # (expression, whether users need it as a vector, whether its operands have been visited)
        stack = [(root, True, False)]
        while stack:
            e, wanted_in_vector, complete = stack.pop()
            if complete:
                assert isinstance(e, Load)
                hoist_pointer(nest, e.value, e.position, scope)
                continue
            needs = nest.needs.of(e)
            if needs <= scope.available:
                if not isinstance(e, KnownNumber):
                    nest.eval(e, scope)
                    if wanted_in_vector and lanes > 1:
                        nest.vector(e, scope, lanes)
            elif e not in seen:
                seen.add(e)
                if isinstance(e, Load):
                    stack.append((e, False, True))
                wanted = inner_vector in needs and not isinstance(e, (Load, IndexValue))
                stack += [(a, wanted, False) for a in reversed(children(e))]

    for e in exprs:
        visit(e)
    for s in stores:
        visit(s.expr)
        hoist_pointer(nest, s.value, s.position, scope)


# -- reductions -----------------------------------------------------------------------------------------------


def accumulated(nest: LoopNest, kernel: Kernel, r: Reduce, acc: Scalar, scope: Scope, lanes: int) -> Scalar:
    """An accumulator after one more element; sums of products use FMA, as BLAS does."""
    b = nest.function.builder(lanes)
    if nest.schedule.is_fused_product(r):
        left, right = [nest.vector(e, scope, lanes) for e in r.expr.args]
        return b.fma(left, right, acc)
    return rule(nest, kernel, r)(b, acc, nest.vector(r.expr, scope, lanes))


def rule(nest: LoopNest, kernel: Kernel, r: Reduce) -> Rule:
    """The function that combines two partial results."""
    if not _is_any_zero(nest, kernel, r):
        return rule_of(r.op)
    order = "gt" if r.op is Combiner.MAX else "lt"
    return lambda b, x, y: b.extremum(order, x, y)


def order_of_keys(nest: LoopNest, kernel: Kernel, r: Reduce) -> str:
    """The comparison ("gt" or "lt") if a row pass computes a float32 extremum with integer keys; "" if it does not.

    The intrinsic that handles NaN and signs of zeros correctly is a chain of dependent instructions.
    """
    if r.dtype != np.float32 or r.op not in (Combiner.MAX, Combiner.MIN) or _is_any_zero(nest, kernel, r):
        return ""
    return "gt" if r.op is Combiner.MAX else "lt"


def _is_any_zero(nest: LoopNest, kernel: Kernel, r: Reduce) -> bool:
    """Whether the reduction is an extremum for which the sign of zero does not matter."""
    found = nest.any_zero.get(r.member)
    if found is None:
        found = nest.any_zero[r.member] = r.any_zero or zero_has_no_sign(kernel, r)
    return found
