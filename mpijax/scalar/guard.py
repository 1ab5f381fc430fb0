"""Rare paths: lanes that need more work than the others, behind a branch.

The builder itself never branches. The branch is in a helper function that LLVM inlines, the rare work in another one
that LLVM does not inline. A lane's result never depends on other lanes: the rare result replaces the common one only in
the lanes marked as rare.
"""

from __future__ import annotations

from collections.abc import Callable

from mpijax.scalar.builder import Builder
from mpijax.scalar.expr import Real
from mpijax.scalar.types import BOOL, Scalar, info

_RARE = '!prof !{!"branch_weights", i32 1, i32 9999}'


# What a function is where it is easy, although the usual way fails there: a condition, and the value.
Easy = Callable[[Real], tuple[Real, float]]


def rarely(
    name: str, rare: Real, usual: Real, work: Callable[..., Real], *xs: Real, easy: Easy | None = None
) -> Real:
    """`usual`, but work(*xs) in the lanes where `rare`; `work` is compiled as a separate function.

    easy: where it holds for the first operand in all rare lanes, the function is not called.
    """
    b = usual.b
    label, t, mask = _label(name, *xs), b.type(usual.dtype), b.vector("i1")
    if label not in b.function.helpers:
        inner = Builder(b.lanes, b.function)
        slow = work(*(Real(inner, Scalar(x.dtype, f"%x{i}")) for i, x in enumerate(xs))).s
        merged = inner.select(Scalar(BOOL, "%rare"), slow, Scalar(usual.dtype, "%usual"))
        b.helper(label, "\n".join([
            f"define internal {t} @{label}({mask} %rare, {t} %usual, {_formals(xs)}) noinline cold {{",
            *inner.lines, f"  ret {t} {merged.ir}", "}"]))
    if easy is None:
        return _branch(label, rare, usual, xs, [f"  %r = call {t} @{label}({mask} %rare, {t} %usual, {_formals(xs)})"])
    inner = Builder(b.lanes, b.function)
    first = Real(inner, Scalar(xs[0].dtype, "%x0"))
    here, value = easy(first)
    most = inner.select(here.s, first.const(value).s, Scalar(usual.dtype, "%usual"))
    rest = inner.emit(f"xor {mask} {here.s.ir}, {inner.splat('true', BOOL).ir if b.lanes > 1 else 'true'}")
    rest = inner.emit(f"and {mask} {rest}, %rare")
    return _branch(label, rare, usual, xs, [
        *inner.lines, *_any_lane(b.lanes, mask, rest, "hard"), "  br i1 %hard, label %hardly, label %easily",
        "hardly:", f"  %s = call {t} @{label}({mask} {rest}, {t} {most.ir}, {_formals(xs)})", "  br label %easily",
        "easily:", f"  %r = phi {t} [{most.ir}, %rarely], [%s, %hardly]"], last="easily")  # fmt: skip


def rarely_call(name: str, rare: Real, usual: Real, library: str, x: Real) -> Real:
    """`usual`, but the C library's function `library`(x) in the lanes where `rare`."""
    b, element = x.b, info(x.dtype).compute
    b.function.declares.add(f"declare {element} @{library}({element})")
    if b.lanes == 1:
        work = [f"  %r = call {element} @{library}({element} %x0)"]
    else:
        each, t = f"mpijax.{library}.each", b.type(x.dtype)
        b.helper(each, _each_lane(each, library, element))
        b.function.declares.add("declare i64 @llvm.cttz.i64(i64, i1)")
        work = [
            f"  store {t} %x0, ptr %in, align 4", f"  store {t} %usual, ptr %out, align 4",
            f"  %lanes = zext i{b.lanes} %any.bits to i64", f"  call void @{each}(ptr %out, ptr %in, i64 %lanes)",
            f"  %r = load {t}, ptr %out, align 4"]  # fmt: skip
    return _branch(_label(name, x), rare, usual, (x,), work)


def _label(name: str, *xs: Real) -> str:
    return ".".join(["mpijax", name, str(xs[0].b.lanes), *(info(x.dtype).compute for x in xs)])


def _formals(xs: tuple[Real, ...]) -> str:
    return ", ".join(f"{x.b.type(x.dtype)} %x{i}" for i, x in enumerate(xs))


def _any_lane(lanes: int, mask: str, flags: str, name: str) -> list[str]:
    """Lines that set %`name` to whether any flag is set."""
    if lanes == 1:
        return [f"  %{name} = or i1 {flags}, false"]
    return [f"  %{name}.bits = bitcast {mask} {flags} to i{lanes}", f"  %{name} = icmp ne i{lanes} %{name}.bits, 0"]


def _branch(
    label: str, rare: Real, usual: Real, xs: tuple[Real, ...], work: list[str], last: str = "rarely"
) -> Real:
    """`usual`, but %r of the lines `work` where `rare`; the branch is taken if any lane is rare.

    last: the block in which `work` ends.
    """
    b = usual.b
    t, mask, outer, lanes = b.type(usual.dtype), b.vector("i1"), f"{label}.branch", b.lanes
    memory = [f"  %{name} = alloca {t}, align 4" for name in ("in", "out") if any(f"%{name}," in x for x in work)]
    b.helper(outer, "\n".join([
        f"define internal {t} @{outer}({mask} %rare, {t} %usual, {_formals(xs)}) alwaysinline {{", *memory,
        *_any_lane(lanes, mask, "%rare", "any"),
        f"  br i1 %any, label %rarely, label %done, {_RARE}",
        "rarely:", *work, "  br label %done",
        "done:", f"  %z = phi {t} [%usual, %0], [%r, %{last}]", f"  ret {t} %z", "}"]))
    actual = ", ".join(f"{b.type(x.dtype)} {x.s.ir}" for x in xs)
    ir = b.emit(f"call {t} @{outer}({mask} {rare.s.ir}, {t} {usual.s.ir}, {actual})")
    return Real(b, Scalar(usual.dtype, ir))


def _each_lane(label: str, library: str, element: str) -> str:
    """Defines label(out, in, lanes): out[i] = library(in[i]) for each set bit i of `lanes`; at least one is set."""
    return "\n".join([
        f"define internal void @{label}(ptr %out, ptr %in, i64 %lanes) noinline cold {{",
        "entry:", "  br label %lane", "lane:", "  %left = phi i64 [%lanes, %entry], [%rest, %lane]",
        "  %i = call i64 @llvm.cttz.i64(i64 %left, i1 true)",
        f"  %from = getelementptr {element}, ptr %in, i64 %i", f"  %x = load {element}, ptr %from",
        f"  %y = call {element} @{library}({element} %x)",
        f"  %to = getelementptr {element}, ptr %out, i64 %i", f"  store {element} %y, ptr %to",
        "  %below = sub i64 %left, 1", "  %rest = and i64 %left, %below", "  %more = icmp ne i64 %rest, 0",
        "  br i1 %more, label %lane, label %done", "done:", "  ret void", "}"])
