"""Baseline code as it is kept: the object file, and the LLVM IR from which optimised code can be made.

Optimised code is kept as the object file alone, so that it takes the place of baseline code under the same key.
"""

from __future__ import annotations

import struct
import zlib

_BASELINE = b"baseline"
# The mark, and the length of the object file, which precedes the IR.
_HEAD = struct.Struct("<8sQ")


def packed(ir_text: str) -> bytes:
    """IR in a sixth of its bytes."""
    return zlib.compress(ir_text.encode(), 1)


def unpacked(ir: bytes) -> str:
    """The text of `packed` IR."""
    return zlib.decompress(ir).decode()


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
