"""Rule of threefry2x32: the counter-based random number generator (Salmon et al., SC 2011), 20 rounds."""

from __future__ import annotations

from mpijax.scalar.builder import Builder
from mpijax.scalar.registry import RULES
from mpijax.scalar.types import UINT32, Scalar

ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
PARITY = 0x1BD11BDA


def threefry2x32(b: Builder, k1: Scalar, k2: Scalar, x1: Scalar, x2: Scalar) -> tuple[Scalar, Scalar]:
    """Two uint32 words from a key (k1, k2) and a counter (x1, x2). The only rule with two results."""
    keys = (k1, k2, b.xor(b.xor(k1, k2), b.const(PARITY, UINT32)))
    x, y = b.add(x1, keys[0]), b.add(x2, keys[1])
    for group in range(5):
        for rotation in ROTATIONS[group % 2]:
            x = b.add(x, y)
            left = b.shl(y, b.const(rotation, UINT32))
            y = b.xor(x, b.or_(left, b.lshr(y, b.const(32 - rotation, UINT32))))
        x = b.add(x, keys[(group + 1) % 3])
        y = b.add(b.add(y, keys[(group + 2) % 3]), b.const(group + 1, UINT32))
    return x, y


RULES["threefry2x32"] = threefry2x32
