"""Reductions as loops: the combined elements, the axes and the initial value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mpijax.compiler.fusion.expr import Applied, Expr, IndexValue, KnownNumber, MemberValue, ReducedValue, children
from mpijax.compiler.fusion.gemm import dot_element, dot_frame
from mpijax.compiler.fusion.reader import ElementReader
from mpijax.compiler.graph.nodes import Node
from mpijax.core import dtypes
from mpijax.core.rules.lowering import Combiner, Library, Meaning, Zeros
from mpijax.core.rules.registry import registry
from mpijax.core.shapes.index import Lin, LoopVar
from mpijax.scalar.builder import Builder
from mpijax.scalar.registry import RULES
from mpijax.scalar.types import Scalar

if TYPE_CHECKING:
    from mpijax.compiler.fusion.kernel import Kernel, Reduce


def frame_of(node: Node) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The shape of a reduction's loops, and which of its axes are reduced."""
    if isinstance(node.primitive.lower, Library):
        return dot_frame(node)
    shape = node.inputs[0].shape
    return shape, tuple(sorted(a % len(shape) for a in node.params["axes"]))


def read_in_order(node: Node) -> bool:
    """Whether the axes of all operands are those of the frame."""
    if not isinstance(node.primitive.lower, Library):
        return True
    (left, right), (left_batch, right_batch) = node.params["dimension_numbers"]
    shape, _ = frame_of(node)
    axes = tuple(range(len(shape)))
    return (*left_batch, *left) == axes == (*right_batch, *right) and all(v.shape == shape for v in node.inputs)


def element_expr(reader: ElementReader, node: Node, index: tuple[Lin, ...]) -> Expr:
    """The expression that a reduction combines at one position of its frame."""
    if isinstance(node.primitive.lower, Library):
        return dot_element(reader, node, index)
    return reader.element(node.inputs[0], index)


def identity(op: Combiner, dtype: np.dtype):
    """The identity element of a reduction."""
    if op in (Combiner.ADD, Combiner.OR, Combiner.XOR):
        return np.zeros((), dtype)[()]
    if op is Combiner.MUL:
        return np.ones((), dtype)[()]
    if op is Combiner.AND:
        return np.asarray(True if dtype == np.bool_ else -1).astype(dtype)[()]
    largest = op is Combiner.MIN  # MAX and LOGADDEXP start from the smallest value
    if dtype == np.bool_:
        return np.bool_(largest)
    if dtypes.issubdtype(dtype, np.integer):
        limits = dtypes.iinfo(dtype)
        return dtype.type(limits.max if largest else limits.min)
    return np.asarray(np.inf if largest else -np.inf).astype(dtype)[()]


def rule_of(op: Combiner) -> Callable[[Builder, Scalar, Scalar], Scalar]:
    """The instructions that combine two partial results."""
    return _logaddexp if op is Combiner.LOGADDEXP else registry[op].lower.rule


def _logaddexp(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """log(exp(x) + exp(y)); x + y where x - y is NaN (equal infinities, or NaN operands)."""
    if x.imag is not None:
        return _complex_logaddexp(b, x, y)
    table = RULES
    delta = b.sub(x, y)
    small = table["log1p"](b, table["exp"](b, b.neg(b.abs(delta))))
    return b.select(b.is_nan(delta), b.add(x, y), b.add(b.maximum(x, y), small))


def _complex_logaddexp(b: Builder, x: Scalar, y: Scalar) -> Scalar:
    """logaddexp of complex numbers, with the imaginary part in [-pi, pi)."""
    table = RULES
    larger = table["max"](b, x, y)
    delta = table["sub"](b, table["add"](b, x, y), table["add"](b, larger, larger))
    out = table["add"](b, larger, table["log1p"](b, table["exp"](b, delta)))
    half, turn, zero = (b.const(v, out.imag.dtype) for v in (np.pi, 2 * np.pi, 0))
    rest = table["rem"](b, b.add(out.imag, half), turn)
    rest = b.select(b.compare("lt", rest, zero), b.add(rest, turn), rest)
    return Scalar(out.dtype, out.ir, b.sub(rest, half))


def _zeros(e: Expr) -> Zeros:
    if not isinstance(e, Applied) or any(a.dtype.kind == "c" for a in e.args):
        return Zeros.SHOWN
    return e.primitive.lower.zeros


def zero_has_no_sign(kernel: Kernel, r: Reduce) -> bool:
    """Whether no stored value depends on the sign of a zero that a maximum or minimum of floats returns."""
    if r.op not in (Combiner.MAX, Combiner.MIN) or not dtypes.issubdtype(r.dtype, np.floating):
        return False
    users: dict[Expr, list[Expr]] = {}
    for e in kernel.expressions:
        for a in children(e):
            users.setdefault(a, []).append(e)
    seen: set[Expr] = set()
    stack: list[Expr] = [e for e in kernel.expressions if isinstance(e, ReducedValue) and e.member is r.member]
    while stack:
        e = stack.pop()
        if e in seen:
            continue
        seen.add(e)
        if e in kernel.roots or isinstance(e, MemberValue) and e.member.value in kernel.saved:
            return False
        for user in users.get(e, []):
            zeros = _zeros(user)
            adds = isinstance(user, Applied) and user.meaning is Meaning.SUM
            if zeros in (Zeros.EQUAL, Zeros.POSITIVE) or adds and Zeros.POSITIVE in map(_zeros, user.args):
                continue
            if zeros is not Zeros.PASSED and not isinstance(user, MemberValue):
                return False
            stack.append(user)
    return True


def first_hit(reduces: Sequence[Reduce], inner: Sequence[Sequence[LoopVar]]) -> Expr | None:
    """The condition of a pass that searches for its first true position; such a pass ends at the first hit.

    It is a minimum, along one axis, of the position where the condition holds and the largest integer elsewhere, as in
    argmax and argmin.
    """
    if len(reduces) != 1 or len(inner) != 1 or len(inner[0]) != 1:
        return None
    [r], [[along]] = reduces, inner
    e = r.expr
    selects = isinstance(e, Applied) and e.meaning is Meaning.SELECTION and len(e.args) == 3
    if r.op is not Combiner.MIN or r.dtype.kind not in "iu" or not selects:
        return None
    condition, elsewhere, place = e.args
    if condition.dtype != np.bool_ or not isinstance(elsewhere, KnownNumber) or not isinstance(place, IndexValue):
        return None
    counts = place.position.offset == 0 and place.position.terms == ((along, 1),)
    return condition if counts and elsewhere.scalar == np.iinfo(r.dtype).max else None
