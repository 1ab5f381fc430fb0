"""A loader for the small relocatable ELF objects our compiler emits: x86-64, code and read-only data.

Loading a cached kernel this way takes microseconds and does not load LLVM. Unusual objects (another CPU, other
relocations, writable data) raise UnsupportedObject; LLVM then loads them.
"""

from __future__ import annotations

import ctypes
import mmap
import struct
import sys
from collections import defaultdict
from functools import cache

from mpijax.compiler.backend.library import LLVMError

_ALLOCATED, _EXECUTABLE, _WRITABLE = 0x2, 0x4, 0x1
_RELA, _SYMTAB, _NOBITS = 4, 2, 8
_R_64, _R_PC32, _R_PLT32, _R_PC64 = 1, 2, 4, 24
_R_GOT = (9, 41, 42)  # GOTPCREL and its relaxable forms
_MACHINE_X86_64 = 62


class _Pages:
    """Writable memory for one object; reused for a later object of about the same size.

    Memory is never unmapped. UCX under MPI stores 145 bytes for each unmapping, and a process may have 65,530 mappings;
    adjacent code pages are one mapping.
    """

    def __init__(self, memory: mmap.mmap, free: list[mmap.mmap]):
        self.memory, self._free = memory, free
        self.base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        self.protect(mmap.PROT_READ | mmap.PROT_WRITE)

    def __del__(self):
        self._free.append(self.memory)

    def protect(self, allowed: int) -> None:
        # Never writable and executable at once, which hardened systems refuse.
        if _mprotect()(self.base, len(self.memory), allowed):
            raise OSError(ctypes.get_errno(), "the operating system forbids executing generated code (mprotect)")


_free: defaultdict[int, list[mmap.mmap]] = defaultdict(list)  # by size


def _pages(nbytes: int) -> _Pages:
    size = max(mmap.PAGESIZE, 1 << (nbytes - 1).bit_length())
    free = _free[size]
    return _Pages(free.pop() if free else mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS), free)


class Code(dict[str, int]):
    """Addresses of an object's global functions, by name; valid while this object is alive.

    memory: holds the code. key: the disk cache key of the object, if known. ir: the packed IR of baseline code.
    better: optimized code of the same kernels, once it exists.
    """

    def __init__(self, addresses: dict[str, int], memory: object):
        super().__init__(addresses)
        self._memory = memory
        self.key: str | None = None
        self.ir: bytes | None = None
        self.better: Code | None = None


class UnsupportedObject(ValueError):
    """The object needs a full linker."""


class _Object:
    """Section headers and symbols of an ELF64 relocatable file."""

    def __init__(self, code: bytes):
        if code[:6] != b"\x7fELF\x02\x01" or struct.unpack_from("<H", code, 16)[0] != 1:
            raise UnsupportedObject("expected a little-endian 64-bit relocatable ELF object")
        self.code = code
        self.machine = struct.unpack_from("<H", code, 18)[0]
        offset, = struct.unpack_from("<Q", code, 40)
        size, count, names = struct.unpack_from("<HHH", code, 58)
        # name, type, flags, address, offset, size, link, info, alignment, entry size
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", code, offset + i * size) for i in range(count)]
        self.symbols = []
        for section in self.sections:
            if section[1] == _SYMTAB:
                strings = self.sections[section[6]][4]
                for at in range(section[4], section[4] + section[5], 24):
                    name, kind, _, index, value, _ = struct.unpack_from("<IBBHQQ", code, at)
                    self.symbols.append((self._string(strings + name), kind, index, value))

    def _string(self, start: int) -> str:
        return self.code[start:self.code.index(b"\0", start)].decode()


def global_functions(code: bytes) -> list[str]:
    """Names of the functions that an object exports."""
    return [name for name, kind, index, _ in _Object(code).symbols if kind == 0x12 and index]


def load_elf(code: bytes) -> Code:
    """Load an object into executable memory."""
    o = _Object(code)
    if o.machine != _MACHINE_X86_64 or sys.platform != "linux":
        raise UnsupportedObject("expected an object for x86-64 Linux")
    externals = [name for name, kind, index, _ in o.symbols if index == 0 and name]
    offsets, end = {}, 0
    for number, section in enumerate(o.sections):
        if section[2] & _ALLOCATED and section[5]:
            if section[2] & _WRITABLE or section[1] == _NOBITS:
                raise UnsupportedObject("writable data")
            alignment = max(section[8], 1)
            end = -(-end // alignment) * alignment
            offsets[number] = end
            end += section[5]
    stubs = -(-end // 16) * 16
    pages = _pages(stubs + 16 * len(externals) + 1)
    memory, base = pages.memory, pages.base
    for number, offset in offsets.items():
        section = o.sections[number]
        memory[offset:offset + section[5]] = code[section[4]:section[4] + section[5]]
    places = {}
    for i, name in enumerate(externals):
        # An indirect jump: libraries may be farther away than a 32-bit displacement.
        places[name] = stubs + 16 * i
        stub = b"\xff\x25\x00\x00\x00\x00" + struct.pack("<Q", _library_function(name))
        memory[places[name]:places[name] + len(stub)] = stub
    for section in o.sections:
        if section[1] == _RELA and section[7] in offsets:
            _relocate(o, section, offsets, places, memory, base)
    pages.protect(mmap.PROT_READ | mmap.PROT_EXEC)
    found = {name: base + offsets[index] + value for name, kind, index, value in o.symbols
             if kind == 0x12 and index in offsets}  # fmt: skip
    return Code(found, pages)


def _relocate(o: _Object, section, offsets, places, memory, base: int) -> None:
    target = offsets[section[7]]
    for at in range(section[4], section[4] + section[5], 24):
        where, kind, symbol, addend = struct.unpack_from("<QIIq", o.code, at)
        name, _, index, value = o.symbols[symbol]
        if index == 0:
            if kind in _R_GOT:
                place = places[name] + 6  # the stub's address word is the GOT entry
            else:
                place = places[name]
        elif index in offsets:
            place = offsets[index] + value
        else:
            raise UnsupportedObject(f"symbol {name} is in a section that is not loaded")
        if kind in (_R_PC32, _R_PLT32) or index == 0 and kind in _R_GOT:
            struct.pack_into("<i", memory, target + where, place + addend - (target + where))
        elif kind == _R_PC64:
            struct.pack_into("<q", memory, target + where, place + addend - (target + where))
        elif kind == _R_64:
            struct.pack_into("<Q", memory, target + where, base + place + addend)
        else:
            raise UnsupportedObject(f"unsupported relocation type {kind}")


@cache
def _libraries() -> tuple:
    return ctypes.CDLL("libm.so.6"), ctypes.CDLL(None)


def _library_function(name: str) -> int:
    """Address of a function of the C or math library."""
    for library in _libraries():
        try:
            return ctypes.cast(getattr(library, name), ctypes.c_void_p).value  # type: ignore[return-value]
        except AttributeError:
            continue
    # LLVM's linker searches the same libraries, and would use address 0.
    raise LLVMError(f"compiled code calls {name}, but the C library does not have this function")


@cache
def _mprotect():
    function = ctypes.CDLL(None, use_errno=True).mprotect
    function.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    return function
