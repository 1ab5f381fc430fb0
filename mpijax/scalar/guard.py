"""A rare path: lanes that need more work than the rest, behind a branch.

The builder itself never branches. The branch stands in a helper function which LLVM inlines, the rare work
in another, which it does not. A lane's result never depends on its neighbours: the rare result replaces
the common one only in the lanes that asked for it.
"""

from __future__ import annotations

from collections.abc import Callable

from mpijax.scalar.builder import Builder
from mpijax.scalar.expr import Expr
from mpijax.scalar.types import BOOL, Scalar, info

_RARE = '!prof !{!"branch_weights", i32 1, i32 9999}'


def rarely(name: str, rare: Expr, x: Expr, usual: Expr, work: Callable[[Expr], Expr]) -> Expr:
    """`usual`, but work(x) in the lanes where `rare`; work is compiled as a function of its own."""
    b = x.b
    label, t, mask = _label(name, x), b.type(x.dtype), b.vector("i1")
    if label not in b.function.helpers:
        inner = Builder(b.lanes, b.function)
        slow = work(Expr(inner, Scalar(x.dtype, "%x"))).s
        merged = inner.select(Scalar(BOOL, "%rare"), slow, Scalar(x.dtype, "%usual"))
        b.helper(label, "\n".join([
            f"define internal {t} @{label}({mask} %rare, {t} %x, {t} %usual) noinline cold {{",
            *inner.lines, f"  ret {t} {merged.ir}", "}"]))
    return _branch(label, rare, x, usual)


def rarely_call(name: str, rare: Expr, x: Expr, usual: Expr, library: str) -> Expr:
    """`usual`, but the C library's function `library`(x) in the lanes where `rare`."""
    b, element = x.b, info(x.dtype).compute
    label = _label(name, x)
    b.function.declares.add(f"declare {element} @{library}({element})")
    b.helper(label, _each_lane(label, library, b.lanes, element))
    return _branch(label, rare, x, usual)


def _label(name: str, x: Expr) -> str:
    return f"mpijax.{name}.{x.b.lanes}.{info(x.dtype).compute}"


def _branch(label: str, rare: Expr, x: Expr, usual: Expr) -> Expr:
    b = x.b
    t, mask, outer = b.type(x.dtype), b.vector("i1"), f"{label}.branch"
    lanes = b.lanes
    any_lane = ["  %any = or i1 %rare, false"] if lanes == 1 else [
        f"  %bits = bitcast {mask} %rare to i{lanes}", f"  %any = icmp ne i{lanes} %bits, 0"]
    b.helper(outer, "\n".join([
        f"define internal {t} @{outer}({mask} %rare, {t} %x, {t} %usual) alwaysinline {{", *any_lane,
        f"  br i1 %any, label %rarely, label %done, {_RARE}",
        "rarely:", f"  %r = call {t} @{label}({mask} %rare, {t} %x, {t} %usual)", "  br label %done",
        "done:", f"  %z = phi {t} [%usual, %0], [%r, %rarely]", f"  ret {t} %z", "}"]))
    ir = b.emit(f"call {t} @{outer}({mask} {rare.s.ir}, {t} {x.s.ir}, {t} {usual.s.ir})")
    return Expr(b, Scalar(x.dtype, ir))


def _each_lane(label: str, library: str, lanes: int, element: str) -> str:
    """Definition of label(rare, x, usual): usual, with library(x) in the lanes of rare."""
    if lanes == 1:
        return "\n".join([
            f"define internal {element} @{label}(i1 %rare, {element} %x, {element} %usual) noinline cold {{",
            f"  %r = call {element} @{library}({element} %x)", f"  ret {element} %r", "}"])
    t, mask = f"<{lanes} x {element}>", f"<{lanes} x i1>"
    return "\n".join([
        f"define internal {t} @{label}({mask} %rare, {t} %x, {t} %usual) noinline cold {{",
        "entry:", "  br label %lane", "lane:", "  %i = phi i32 [0, %entry], [%next, %after]",
        f"  %all = phi {t} [%usual, %entry], [%merged, %after]",
        f"  %on = extractelement {mask} %rare, i32 %i", "  br i1 %on, label %work, label %after",
        "work:", f"  %e = extractelement {t} %x, i32 %i", f"  %r = call {element} @{library}({element} %e)",
        f"  %new = insertelement {t} %all, {element} %r, i32 %i", "  br label %after",
        "after:", f"  %merged = phi {t} [%all, %lane], [%new, %work]", "  %next = add i32 %i, 1",
        f"  %more = icmp ult i32 %next, {lanes}", "  br i1 %more, label %lane, label %done",
        "done:", f"  ret {t} %merged", "}"])
