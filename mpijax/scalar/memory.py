"""Loads and stores of W lanes: contiguous, one element for all lanes, strided, gathered.

Pointers are operand texts of type `ptr` to the first lane's element; strides are operand texts of type
i64 in elements; only the element's own alignment is assumed. `note` is appended to the instruction
(alias metadata: `", !alias.scope !1, !noalias !2"`).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.scalar import narrow
from mpijax.scalar.types import Scalar, info


class Memory:
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

    # ---- between storage and compute form (operand texts)

    def _widen(self, stored: str, dtype: np.dtype) -> str:
        i = info(dtype)
        if i.kind == "b":
            zero = "0" if self.lanes == 1 else "zeroinitializer"
            return self.emit(f"icmp ne {self.vector('i8')} {stored}, {zero}")
        if i.is_integer and i.compute != i.storage:
            return self.emit(f"trunc {self.vector(i.storage)} {stored} to {self.vector(i.compute)}")
        return narrow.unpack(self, stored, dtype) if i.kind == "n" else stored

    def _storage(self, x: Scalar) -> str:
        i = info(x.dtype)
        if i.kind == "b" or (i.is_integer and i.compute != i.storage):
            return self.emit(f"zext {self.vector(i.compute)} {x.ir} to {self.vector(i.storage)}")
        return narrow.pack(self, x) if i.kind == "n" else x.ir

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

    def load_splat(self, ptr: str, dtype, note: str = "") -> Scalar:
        """One element, the same in all lanes."""
        return self.splat(self.with_lanes(1).load(ptr, dtype, note))

    def load_strided(self, ptr: str, stride: str, dtype, note: str = "") -> Scalar:
        """Elements ptr[0], ptr[stride], ..., stride in elements."""
        if self.lanes == 1:
            return self.load(ptr, dtype, note)
        return self._load_each(self._strided_pointers(ptr, stride, dtype), dtype, note)

    def load_gather(self, ptr: str, index: Scalar, dtype, mask: Scalar | None = None,
                    note: str = "") -> Scalar:
        """Elements ptr[index]; index int64. Lanes outside `mask` (bool) touch no memory and are zero."""
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
        # A vector of one lane is still a vector here: LLVM's gathers take no scalars.
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
            self.effect(f"store {i.storage} {x.imag.ir}, ptr {second}, align {align}{note}")
            return
        n, t = self.lanes, self.vector(i.storage)
        mask = ", ".join(f"i32 {lane}, i32 {lane + n}" for lane in range(n))
        pairs = self.emit(f"shufflevector {t} {x.ir}, {t} {x.imag.ir}, <{2 * n} x i32> <{mask}>")
        self.effect(f"store <{2 * n} x {i.storage}> {pairs}, ptr {ptr}, align {align}{note}")

    def store_past_caches(self, ptr: str, x: Scalar) -> None:
        """W consecutive elements, whole vector registers at a multiple of their size; `fence` must follow."""
        i = info(x.dtype)
        self.function.helpers["nontemporal"] = "!0 = !{i32 1}"
        self.effect(f"store {self.vector(i.storage)} {self._storage(x)}, ptr {ptr}, align 32, !nontemporal !0")

    def fence(self) -> None:
        """What was stored past the caches is seen by other threads before what follows."""
        self.function.declares.add("declare void @llvm.x86.sse.sfence()")
        self.effect("call void @llvm.x86.sse.sfence()")

    def store_strided(self, ptr: str, stride: str, x: Scalar, note: str = "") -> None:
        """Elements ptr[0], ptr[stride], ..., stride in elements."""
        if self.lanes == 1:
            return self.store(ptr, x, note)
        return self._store_each(self._strided_pointers(ptr, stride, x.dtype), x, note)

    def store_scatter(self, ptr: str, index: Scalar, x: Scalar, mask: Scalar | None = None,
                      note: str = "") -> None:
        """ptr[index] = x in lane order: the last of equal indices stays; lanes outside `mask` are idle."""
        if mask is None:
            return self._store_each(self._indexed_pointers(ptr, index, x.dtype), x, note)
        i = info(x.dtype)
        pointers = self._pointer_vector(ptr, index, x.dtype)
        self._masked_store(pointers, self._storage(x), mask, i)
        if i.kind == "c":
            second = self.emit(f"getelementptr {i.storage}, <{self.lanes} x ptr> {pointers}, i64 1")
            self._masked_store(second, x.imag.ir, mask, i)
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
