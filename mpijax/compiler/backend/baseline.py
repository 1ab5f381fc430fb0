"""Baseline code as it is kept: the object file, and the LLVM IR from which optimised code can be made.

Optimised code is kept as the object file alone, so that it takes the place of baseline code under the same key.

A loop that is one function (`steps/native.py`) asks at each turn whether there is better code, and leaves if there is.
"""

from __future__ import annotations

import struct
import zlib

# Whether there is better code: how a function's IR asks, and the answer in optimised code.
POLL, _NO = "load volatile i64, ptr %params, align 8", "add i64 0, 0"
_BASELINE = b"baseline"
# The mark, and the length of the object file, which precedes the IR.
_HEAD = struct.Struct("<8sQ")


def final(ir_text: str) -> str:
    """IR of code that nothing better will take the place of."""
    return ir_text.replace(POLL, _NO)


def packed(ir_text: str, optimize: bool) -> bytes:
    """IR in a sixth of its bytes. optimize: LLVM's passes are to run on it."""
    return bytes([optimize]) + zlib.compress(ir_text.encode(), 1)


def unpacked(ir: bytes) -> tuple[str, bool]:
    """The text of `packed` IR, and whether LLVM's passes are to run on it."""
    return zlib.decompress(ir[1:]).decode(), bool(ir[0])


def with_ir(code: bytes, ir: bytes) -> bytes:
    """Baseline code with its packed IR."""
    return _HEAD.pack(_BASELINE, len(code)) + code + ir


def is_baseline(content: bytes) -> bool:
    """Whether what is kept is baseline code."""
    return content.startswith(_BASELINE)


def divided(content: bytes) -> tuple[bytes, bytes | None]:
    """The object file, and the packed IR where it is baseline code."""
    if not is_baseline(content):
        return content, None
    _, length = _HEAD.unpack_from(content)
    return content[_HEAD.size : _HEAD.size + length], content[_HEAD.size + length :]
