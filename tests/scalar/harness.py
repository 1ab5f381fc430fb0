"""Runs a scalar rule over NumPy arrays: wraps it in a loop kernel, compiles, calls through ctypes."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np

from mpijax import scalar
from mpijax.compiler.backend import llvm

SIGNATURE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)


def kernel_text(body, in_dtypes, lanes: int):
    """(text of a module with `k`, result dtype): out[i] = body(builder, in0[i], ...) for i in [begin, end).

    The body sees the arrays' pointers as %p0, %p1, ... and the index of its first lane as %i.
    """
    function = scalar.FunctionText()
    b = scalar.Builder(lanes, function)
    xs = []
    for number, dtype in enumerate(in_dtypes):
        item = np.dtype(dtype).itemsize
        at = b.emit(f"mul i64 %i, {item}")
        xs.append(b.load(b.emit(f"getelementptr i8, ptr %p{number}, i64 {at}"), dtype, ", !noalias !2"))
    y = body(b, *xs)
    at = b.emit(f"mul i64 %i, {y.dtype.itemsize}")
    b.store(b.emit(f"getelementptr i8, ptr %q, i64 {at}"), y, ", !alias.scope !2")
    pointers = []
    for number in range(len(in_dtypes) + 1):
        name = "%q" if number == len(in_dtypes) else f"%p{number}"
        pointers += [
            f"  {name}.at = getelementptr ptr, ptr %ptrs, i64 {number}",
            f"  {name} = load ptr, ptr {name}.at",
        ]
    lines = "\n".join(b.lines)
    return "\n".join(
        [
            "define void @k(ptr %ptrs, ptr %params, i64 %begin, i64 %end) {",
            "entry:",
            *pointers,
            "  %any = icmp slt i64 %begin, %end",
            "  br i1 %any, label %loop, label %done",
            "loop:",
            "  %i = phi i64 [%begin, %entry], [%next, %loop]",
            lines,
            f"  %next = add i64 %i, {lanes}",
            "  %more = icmp slt i64 %next, %end",
            "  br i1 %more, label %loop, label %done",
            "done:",
            "  ret void",
            "}",
            function.module_text(),
            "!0 = !{!0}",
            "!1 = !{!1, !0}",
            "!2 = !{!1}",
        ]
    ), y.dtype


@cache
def compiled(name: str, in_dtypes: tuple, lanes: int, params: tuple = ()):
    """(function(ptrs, params, begin, end), result dtype) of a rule."""
    rule = scalar.rule_for(name)
    return build(lambda b, *xs: rule(b, *xs, **dict(params)), in_dtypes, lanes)


def build(body, in_dtypes, lanes: int):
    text, dtype = kernel_text(body, in_dtypes, lanes)
    code = llvm.load_object(llvm.compile_object(text))
    kernel = SIGNATURE(code["k"])
    kernel.code = code
    return kernel, dtype


def call(kernel, dtype, lanes: int, arrays):
    """Run a kernel on equally long 1-D arrays (padded to whole vectors)."""
    n = len(arrays[0])
    padded = -(-n // lanes) * lanes
    ins = [
        np.concatenate([a, np.repeat(a[-1:], padded - n)]) if padded > n else np.ascontiguousarray(a)
        for a in arrays
    ]
    out = np.empty(padded, dtype)
    pointers = (ctypes.c_void_p * (len(ins) + 1))(*[a.ctypes.data for a in ins], out.ctypes.data)
    kernel(pointers, None, 0, padded)
    return out[:n]


def run(name: str, *arrays, lanes: int = 8, **params):
    """rule(*arrays) for a rule by primitive name."""
    arrays = [np.asarray(a) for a in arrays]
    kernel, dtype = compiled(name, tuple(a.dtype for a in arrays), lanes, tuple(sorted(params.items())))
    return call(kernel, dtype, lanes, arrays)


def ulp_error(got, exact):
    """|got - exact| in units in the last place of got's dtype at exact; 0 where both overflow or are NaN."""
    f = np.finfo(got.dtype)
    with np.errstate(all="ignore"):
        exact = np.asarray(exact, np.longdouble)
        size = np.maximum(np.abs(exact), np.longdouble(f.tiny))
        unit = np.exp2(np.floor(np.log2(size))) * f.eps
        error = np.abs(got.astype(np.longdouble) - exact) / unit
        rounded = exact.astype(got.dtype)
    special = ~(np.isfinite(rounded) & np.isfinite(got))
    same = (got == rounded) | (np.isnan(got) & np.isnan(rounded))
    return np.where(special, np.where(same, 0, np.inf), error)
