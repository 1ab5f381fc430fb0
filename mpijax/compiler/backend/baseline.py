"""Defines the stored form of baseline code: the object file, and the LLVM IR for a later optimizing compilation.

Optimized code is stored as the object file alone; it replaces baseline code under the same key.

A loop compiled to one function (`steps/native.py`) counts its iterations and returns after as many as its caller says.
"""

from __future__ import annotations

import struct
import zlib

# The number of iterations after which a function returns; and what replaces it in optimized code, which goes on.
LIMIT, _NONE = "add i64 %end, 0", "add i64 0, 0"
_BASELINE = b"baseline"
# The marker and the length of the object file, which comes before the IR.
_HEAD = struct.Struct("<8sQ")


def final(ir_text: str) -> str:
    """The IR without limits of iterations."""
    return ir_text.replace(LIMIT, _NONE)


def packed(ir_text: str, optimize: bool) -> bytes:
    """Compressed IR, a sixth of its size. optimize: whether to run LLVM's passes on it."""
    return bytes([optimize]) + zlib.compress(ir_text.encode(), 1)


def unpacked(ir: bytes) -> tuple[str, bool]:
    """The text of `packed` IR, and whether to run LLVM's passes on it."""
    return zlib.decompress(ir[1:]).decode(), bool(ir[0])


def with_ir(code: bytes, ir: bytes) -> bytes:
    """Baseline code with its packed IR."""
    return _HEAD.pack(_BASELINE, len(code)) + code + ir


def is_baseline(content: bytes) -> bool:
    """Whether the stored content is baseline code."""
    return content.startswith(_BASELINE)


def divided(content: bytes) -> tuple[bytes, bytes | None]:
    """The object file, and the packed IR if it is baseline code."""
    if not is_baseline(content):
        return content, None
    _, length = _HEAD.unpack_from(content)
    return content[_HEAD.size : _HEAD.size + length], content[_HEAD.size + length :]
