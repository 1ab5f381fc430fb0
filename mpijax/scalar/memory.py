"""Loads and stores of W lanes: contiguous, one element for all lanes, strided, gathered.

Pointers are operand texts of type `ptr` to the first lane's element. Strides are operand texts of type i64, in
elements. Only the alignment of an element is assumed. `note` is appended to the instruction (alias metadata:
`", !alias.scope !1, !noalias !2"`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from mpijax.scalar.types import Scalar, imag_part, info

REGISTER_BYTES = 32


class MemoryInstructions:
    """The memory half of Builder, which provides the names below."""

    lanes: int
    function: Any
    emit: Any
    effect: Any
    fresh: Any
    vector: Any
    splat: Any
    lane: Any
    with_lanes: Any
    unpacked: Callable[[str, np.dtype], str]
    packed: Callable[[Scalar], str]

    # ---- between storage and compute form (operand texts)

    def _widen(self, stored: str, dtype: np.dtype) -> str:
        i = info(dtype)
        if i.kind == "b":
            zero = "0" if self.lanes == 1 else "zeroinitializer"
            return self.emit(f"icmp ne {self.vector('i8')} {stored}, {zero}")
        if i.is_integer and i.compute != i.storage:
            return self.emit(f"trunc {self.vector(i.storage)} {stored} to {self.vector(i.compute)}")
        return self.unpacked(stored, dtype) if i.kind == "n" else stored

    def _storage(self, x: Scalar) -> str:
        i = info(x.dtype)
        if i.kind == "b" or (i.is_integer and i.compute != i.storage):
            return self.emit(f"zext {self.vector(i.compute)} {x.ir} to {self.vector(i.storage)}")
        return self.packed(x) if i.kind == "n" else x.ir

    def _complex(self, dtype: np.dtype, re: str, im: str) -> Scalar:
        return Scalar(dtype, re, Scalar(info(dtype).part, im))

    # ---- loads

    def load(self, ptr: str, dtype, note: str = "") -> Scalar:
        """W consecutive elements."""
        dtype = np.dtype(dtype)
        i = info(dtype)
        align = i.itemsize if i.kind != "c" else i.itemsize // 2
        if i.kind != "c":
            raw = self.emit(f"load {self.vector(i.storage)}, ptr {ptr}, align {align}{note}")
            return Scalar(dtype, self._widen(raw, dtype))
        if self.lanes == 1:
            second = self.emit(f"getelementptr {i.storage}, ptr {ptr}, i64 1")
            re = self.emit(f"load {i.storage}, ptr {ptr}, align {align}{note}")
            return self._complex(dtype, re, self.emit(f"load {i.storage}, ptr {second}, align {align}{note}"))
        t = f"<{2 * self.lanes} x {i.storage}>"
        raw = self.emit(f"load {t}, ptr {ptr}, align {align}{note}")
        return self._complex(dtype, self._every_other(t, raw, 0), self._every_other(t, raw, 1))

    def _every_other(self, t: str, raw: str, start: int) -> str:
        mask = ", ".join(f"i32 {2 * lane + start}" for lane in range(self.lanes))
        return self.emit(f"shufflevector {t} {raw}, {t} poison, <{self.lanes} x i32> <{mask}>")

    def load_strided(self, ptr: str, stride: str, dtype, note: str = "") -> Scalar:
        """Elements ptr[0], ptr[stride], ..., stride in elements."""
        if self.lanes == 1:
            return self.load(ptr, dtype, note)
        return self._load_each(self._strided_pointers(ptr, stride, dtype), dtype, note)

    def load_steps(self, ptr: str, step: int, dtype, note: str = "") -> Scalar:
        """Elements ptr[0], ptr[step], ... for a nonzero step from -4 to 4: selects from whole registers."""
        dtype = np.dtype(dtype)
        i = info(dtype)
        if self.lanes == 1 or step == 1:
            return self.load(ptr, dtype, note)
        register = min(self.lanes, REGISTER_BYTES // i.itemsize)
        parts = []
        for first in range(0, self.lanes, register):
            at = self.emit(f"getelementptr {self._element(dtype)}, ptr {ptr}, i64 {first * step}") if first else ptr
            parts.append(self.with_lanes(register)._picked(at, step, dtype, note))
        columns = [self._side_by_side(list(column), i.storage) for column in zip(*parts, strict=True)]
        return self._complex(dtype, *columns) if i.kind == "c" else Scalar(dtype, self._widen(columns[0], dtype))

    def _picked(self, ptr: str, step: int, dtype: np.dtype, note: str) -> list[str]:
        """W elements at distance `step` from |step| adjacent vectors; the last vector ends at the last element."""
        i, n, count = info(dtype), self.lanes, abs(step)
        units = 2 if i.kind == "c" else 1
        span = count * (n - 1) + 1
        base = self.emit(f"getelementptr {self._element(dtype)}, ptr {ptr}, i64 {step * (n - 1)}") if step < 0 else ptr
        starts = [k * n for k in range(count - 1)] + [span - n]
        t, align = f"<{units * n} x {i.storage}>", i.itemsize // units
        vectors = []
        for start in starts:
            at = self.emit(f"getelementptr {self._element(dtype)}, ptr {base}, i64 {start}") if start else base
            vectors.append(self.emit(f"load {t}, ptr {at}, align {align}{note}"))
        wanted = [step * lane if step > 0 else span - 1 + step * lane for lane in range(n)]
        found = [max(k for k, start in enumerate(starts) if start <= w) for w in wanted]
        inside = [w - starts[k] for w, k in zip(wanted, found, strict=True)]
        return [self._merged(vectors, found, [units * x + unit for x in inside], units * n, t) for unit in range(units)]

    def _merged(self, vectors: list[str], found: list[int], inside: list[int], width: int, t: str) -> str:
        """Lane k is element inside[k] of vector found[k]; the vectors, of type t, have `width` elements."""
        have = vectors[0]
        places = [x if k == 0 else None for x, k in zip(inside, found, strict=True)]
        for number in range(1, max(len(vectors), 2)):
            other = vectors[number] if number < len(vectors) else "poison"
            last = number >= len(vectors) - 1
            places = [width + x if k == number else p for x, k, p in zip(inside, found, places, strict=True)]
            padding = [] if last else [None] * (width - len(places))
            mask = ", ".join("i32 poison" if p is None else f"i32 {p}" for p in places + padding)
            have = self.emit(f"shufflevector {t} {have}, {t} {other}, <{len(places + padding)} x i32> <{mask}>")
            places = [None if p is None else lane for lane, p in enumerate(places)]
        return have

    def _side_by_side(self, parts: list[str], element: str) -> str:
        """Concatenates vectors of one length, a power of two of them, into one of W lanes."""
        lanes = self.lanes // len(parts)
        while len(parts) > 1:
            t, mask = f"<{lanes} x {element}>", ", ".join(f"i32 {k}" for k in range(2 * lanes))
            parts = [
                self.emit(f"shufflevector {t} {a}, {t} {b}, <{2 * lanes} x i32> <{mask}>")
                for a, b in zip(parts[::2], parts[1::2], strict=True)
            ]
            lanes *= 2
        return parts[0]

    def of_bits(self, parts: list[str], dtype) -> Scalar:
        """W elements from a power of two of concatenated integer vectors, with integers of the elements' size."""
        i = info(dtype)
        bits = self._side_by_side(parts, f"i{8 * i.itemsize}")
        if i.storage.startswith("i"):
            return Scalar(dtype, self._widen(bits, dtype))
        stored = self.emit(f"bitcast {self.vector(f'i{8 * i.itemsize}')} {bits} to {self.vector(i.storage)}")
        return Scalar(dtype, self._widen(stored, dtype))

    def load_gather(self, ptr: str, index: Scalar, dtype, mask: Scalar | None = None,
                    note: str = "") -> Scalar:
        """Elements ptr[index]; index is int64. Lanes outside `mask` (bool) access no memory and are zero."""
        dtype = np.dtype(dtype)
        if mask is None:
            return self._load_each(self._indexed_pointers(ptr, index, dtype), dtype, note)
        i = info(dtype)
        pointers = self._pointer_vector(ptr, index, dtype)
        first = self._masked_load(pointers, i.storage, mask, i)
        if i.kind != "c":
            return Scalar(dtype, self._widen(first, dtype))
        second = self.emit(f"getelementptr {i.storage}, <{self.lanes} x ptr> {pointers}, i64 1")
        return self._complex(dtype, first, self._masked_load(second, i.storage, mask, i))

    def _masked_load(self, pointers: str, storage: str, mask: Scalar, i) -> str:
        # With one lane this is still a vector: LLVM's gathers do not accept scalars.
        n = self.lanes
        t = f"<{n} x {storage}>"
        name = f"llvm.masked.gather.v{n}{_short(storage)}.v{n}p0"
        self.function.declares.add(f"declare {t} @{name}(<{n} x ptr>, i32, <{n} x i1>, {t})")
        align = i.itemsize if i.kind != "c" else i.itemsize // 2
        raw = self.emit(f"call {t} @{name}(<{n} x ptr> {pointers}, i32 {align}, "
                        f"<{n} x i1> {self._mask_vector(mask)}, {t} zeroinitializer)")
        return raw if n > 1 else self.emit(f"extractelement {t} {raw}, i64 0")

    def _mask_vector(self, mask: Scalar) -> str:
        if self.lanes > 1:
            return mask.ir
        return self.emit(f"insertelement <1 x i1> poison, i1 {mask.ir}, i64 0")

    # ---- pointers

    def _element(self, dtype) -> str:
        i = info(np.dtype(dtype))
        return f"[2 x {i.storage}]" if i.kind == "c" else i.storage

    def _strided_pointers(self, ptr: str, stride: str, dtype) -> list[str]:
        element, pointers = self._element(dtype), [ptr]
        for _ in range(self.lanes - 1):
            pointers.append(self.emit(f"getelementptr {element}, ptr {pointers[-1]}, i64 {stride}"))
        return pointers

    def _indexed_pointers(self, ptr: str, index: Scalar, dtype) -> list[str]:
        element = self._element(dtype)
        return [self.emit(f"getelementptr {element}, ptr {ptr}, i64 {self.lane(index, lane).ir}")
                for lane in range(self.lanes)]

    def _pointer_vector(self, ptr: str, index: Scalar, dtype) -> str:
        n = self.lanes
        ir = index.ir if n > 1 else self.emit(f"insertelement <1 x i64> poison, i64 {index.ir}, i64 0")
        return self.emit(f"getelementptr {self._element(dtype)}, ptr {ptr}, <{n} x i64> {ir}")

    def _load_each(self, pointers: list[str], dtype, note: str) -> Scalar:
        dtype = np.dtype(dtype)
        i, one = info(dtype), self.with_lanes(1)
        if self.lanes == 1:
            return self.load(pointers[0], dtype, note)
        if i.kind == "c":
            parts = [one.load(p, dtype, note) for p in pointers]
            re = self._gathered([p.ir for p in parts], i.storage)
            return self._complex(dtype, re, self._gathered([p.imag.ir for p in parts], i.storage))
        raw = [self.emit(f"load {i.storage}, ptr {p}, align {i.itemsize}{note}") for p in pointers]
        return Scalar(dtype, self._widen(self._gathered(raw, i.storage), dtype))

    def _gathered(self, values: list[str], element: str) -> str:
        t, vector = self.vector(element), "poison"
        for lane, value in enumerate(values):
            vector = self.emit(f"insertelement {t} {vector}, {element} {value}, i64 {lane}")
        return vector

    # ---- stores

    def store(self, ptr: str, x: Scalar, note: str = "") -> None:
        """W consecutive elements."""
        i = info(x.dtype)
        if i.kind != "c":
            t, stored = self.vector(i.storage), self._storage(x)
            self.effect(f"store {t} {stored}, ptr {ptr}, align {i.itemsize}{note}")
            return
        align = i.itemsize // 2
        if self.lanes == 1:
            self.effect(f"store {i.storage} {x.ir}, ptr {ptr}, align {align}{note}")
            second = self.emit(f"getelementptr {i.storage}, ptr {ptr}, i64 1")
            self.effect(f"store {i.storage} {imag_part(x).ir}, ptr {second}, align {align}{note}")
            return
        n, t = self.lanes, self.vector(i.storage)
        mask = ", ".join(f"i32 {lane}, i32 {lane + n}" for lane in range(n))
        pairs = self.emit(f"shufflevector {t} {x.ir}, {t} {imag_part(x).ir}, <{2 * n} x i32> <{mask}>")
        self.effect(f"store <{2 * n} x {i.storage}> {pairs}, ptr {ptr}, align {align}{note}")

    def store_past_caches(self, ptr: str, x: Scalar) -> None:
        """Stores W consecutive elements past the caches, as aligned whole vector registers; `fence` must follow."""
        i = info(x.dtype)
        self.function.helpers["nontemporal"] = "!0 = !{i32 1}"
        self.effect(f"store {self.vector(i.storage)} {self._storage(x)}, ptr {ptr}, align 32, !nontemporal !0")

    def fence(self) -> None:
        """Makes stores past the caches visible to other threads before later stores."""
        self.function.declares.add("declare void @llvm.x86.sse.sfence()")
        self.effect("call void @llvm.x86.sse.sfence()")

    def store_strided(self, ptr: str, stride: str, x: Scalar, note: str = "") -> None:
        """Elements ptr[0], ptr[stride], ..., stride in elements."""
        if self.lanes == 1:
            return self.store(ptr, x, note)
        return self._store_each(self._strided_pointers(ptr, stride, x.dtype), x, note)

    def store_scatter(self, ptr: str, index: Scalar, x: Scalar, mask: Scalar | None = None,
                      note: str = "") -> None:
        """ptr[index] = x in lane order: the last of equal indices wins; lanes outside `mask` store nothing."""
        if mask is None:
            return self._store_each(self._indexed_pointers(ptr, index, x.dtype), x, note)
        i = info(x.dtype)
        pointers = self._pointer_vector(ptr, index, x.dtype)
        self._masked_store(pointers, self._storage(x), mask, i)
        if i.kind == "c":
            second = self.emit(f"getelementptr {i.storage}, <{self.lanes} x ptr> {pointers}, i64 1")
            self._masked_store(second, imag_part(x).ir, mask, i)
        return None

    def _masked_store(self, pointers: str, value: str, mask: Scalar, i) -> None:
        n = self.lanes
        t = f"<{n} x {i.storage}>"
        if n == 1:
            value = self.emit(f"insertelement {t} poison, {i.storage} {value}, i64 0")
        name = f"llvm.masked.scatter.v{n}{_short(i.storage)}.v{n}p0"
        self.function.declares.add(f"declare void @{name}({t}, <{n} x ptr>, i32, <{n} x i1>)")
        align = i.itemsize if i.kind != "c" else i.itemsize // 2
        self.effect(f"call void @{name}({t} {value}, <{n} x ptr> {pointers}, i32 {align}, "
                    f"<{n} x i1> {self._mask_vector(mask)})")

    def _store_each(self, pointers: list[str], x: Scalar, note: str) -> None:
        i, one = info(x.dtype), self.with_lanes(1)
        if self.lanes == 1:
            return self.store(pointers[0], x, note)
        if i.kind == "c":
            for lane, ptr in enumerate(pointers):
                one.store(ptr, self.lane(x, lane), note)
            return None
        stored = self._storage(x)
        for lane, ptr in enumerate(pointers):
            value = self.emit(f"extractelement {self.vector(i.storage)} {stored}, i64 {lane}")
            self.effect(f"store {i.storage} {value}, ptr {ptr}, align {i.itemsize}{note}")
        return None


def _short(storage: str) -> str:
    return {"float": "f32", "double": "f64", "half": "f16"}.get(storage, storage)
