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


def rarely(name: str, rare: Expr, usual: Expr, work: Callable[..., Expr], *xs: Expr) -> Expr:
    """`usual`, but work(*xs) in the lanes where `rare`; work is compiled as a function of its own."""
    b = usual.b
    label, t, mask = _label(name, *xs), b.type(usual.dtype), b.vector("i1")
    if label not in b.function.helpers:
        inner = Builder(b.lanes, b.function)
        slow = work(*(Expr(inner, Scalar(x.dtype, f"%x{i}")) for i, x in enumerate(xs))).s
        merged = inner.select(Scalar(BOOL, "%rare"), slow, Scalar(usual.dtype, "%usual"))
        b.helper(label, "\n".join([
            f"define internal {t} @{label}({mask} %rare, {t} %usual, {_formals(xs)}) noinline cold {{",
            *inner.lines, f"  ret {t} {merged.ir}", "}"]))
    return _branch(label, rare, usual, xs)


def rarely_call(name: str, rare: Expr, usual: Expr, library: str, x: Expr) -> Expr:
    """`usual`, but the C library's function `library`(x) in the lanes where `rare`."""
    b, element = x.b, info(x.dtype).compute
    label = _label(name, x)
    b.function.declares.add(f"declare {element} @{library}({element})")
    b.helper(label, _each_lane(label, library, b.lanes, element))
    return _branch(label, rare, usual, (x,))


def _label(name: str, *xs: Expr) -> str:
    return ".".join(["mpijax", name, str(xs[0].b.lanes), *(info(x.dtype).compute for x in xs)])


def _formals(xs: tuple[Expr, ...]) -> str:
    return ", ".join(f"{x.b.type(x.dtype)} %x{i}" for i, x in enumerate(xs))


def _branch(label: str, rare: Expr, usual: Expr, xs: tuple[Expr, ...]) -> Expr:
    b = usual.b
    t, mask, outer, lanes = b.type(usual.dtype), b.vector("i1"), f"{label}.branch", b.lanes
    any_lane = ["  %any = or i1 %rare, false"] if lanes == 1 else [
        f"  %bits = bitcast {mask} %rare to i{lanes}", f"  %any = icmp ne i{lanes} %bits, 0"]
    b.helper(outer, "\n".join([
        f"define internal {t} @{outer}({mask} %rare, {t} %usual, {_formals(xs)}) alwaysinline {{", *any_lane,
        f"  br i1 %any, label %rarely, label %done, {_RARE}",
        "rarely:", f"  %r = call {t} @{label}({mask} %rare, {t} %usual, {_formals(xs)})", "  br label %done",
        "done:", f"  %z = phi {t} [%usual, %0], [%r, %rarely]", f"  ret {t} %z", "}"]))
    actual = ", ".join(f"{b.type(x.dtype)} {x.s.ir}" for x in xs)
    ir = b.emit(f"call {t} @{outer}({mask} {rare.s.ir}, {t} {usual.s.ir}, {actual})")
    return Expr(b, Scalar(usual.dtype, ir))


def _each_lane(label: str, library: str, lanes: int, element: str) -> str:
    """Definition of label(rare, x, usual): usual, with library(x) in the lanes of rare."""
    if lanes == 1:
        return "\n".join([
            f"define internal {element} @{label}(i1 %rare, {element} %usual, {element} %x0) noinline cold {{",
            f"  %r = call {element} @{library}({element} %x0)", f"  ret {element} %r", "}"])
    t, mask = f"<{lanes} x {element}>", f"<{lanes} x i1>"
    return "\n".join([
        f"define internal {t} @{label}({mask} %rare, {t} %usual, {t} %x0) noinline cold {{",
        "entry:", "  br label %lane", "lane:", "  %i = phi i32 [0, %entry], [%next, %after]",
        f"  %all = phi {t} [%usual, %entry], [%merged, %after]",
        f"  %on = extractelement {mask} %rare, i32 %i", "  br i1 %on, label %work, label %after",
        "work:", f"  %e = extractelement {t} %x0, i32 %i", f"  %r = call {element} @{library}({element} %e)",
        f"  %new = insertelement {t} %all, {element} %r, i32 %i", "  br label %after",
        "after:", f"  %merged = phi {t} [%all, %lane], [%new, %work]", "  %next = add i32 %i, 1",
        f"  %more = icmp ult i32 %next, {lanes}", "  br i1 %more, label %lane, label %done",
        "done:", f"  ret {t} %merged", "}"])
