"""What an estimate consists of, and what a rule gets to know about an operation.

The names are JAX's: "hbm" is the memory of a device, "ici" what connects the devices along an axis of a mesh.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.primitive import Primitive
from mpijax.core.types.avals import ShapedArray


@dataclass(frozen=True, kw_only=True)
class RooflineRuleContext:
    """An operation of a program: its types, and where the program runs.

    avals_in, avals_out: types of operands and results. mesh: over which axes it communicates, or None.
    pin_lhs_in_vmem, pin_rhs_in_vmem: whether matrix products have this operand in fast memory.
    jaxpr_eqn_ctx: None; JAX has a context of the equation here.

    >>> from mpijax.experimental import roofline
    >>> square = mpijax.extend.core.Primitive("square_of_a_matrix")
    >>> _ = square.def_abstract_eval(lambda x: x)
    >>> @roofline.register_roofline(square)
    ... def rule(ctx: roofline.RooflineRuleContext, x, **params):
    ...     return roofline.RooflineResult(flops=2 * x.shape[0] ** 3, hbm_bytes=x.bytes + 4 * ctx.avals_out[0].size)
    >>> roofline.roofline(square.bind)(jnp.ones((4, 4)))[1].hbm_bytes
    128
    """

    name_stack: Any
    primitive: Primitive
    avals_in: Sequence[Any]
    avals_out: Sequence[Any]
    jaxpr_eqn_ctx: Any
    mesh: Any
    pin_lhs_in_vmem: bool
    pin_rhs_in_vmem: bool


@dataclass(frozen=True, kw_only=True)
class RooflineShape:
    """Shape and element type of an array.

    >>> mpijax.experimental.roofline.RooflineShape(shape=(2, 3), dtype=np.dtype("float32")).bytes
    24
    """

    shape: tuple[int, ...]
    dtype: Any

    @classmethod
    def from_aval(cls, aval: Any) -> RooflineShape:
        """Of the type of an array. Raises TypeError for other types."""
        if not isinstance(aval, ShapedArray):
            raise TypeError(f"Expected ShapedArray, got {type(aval)}.")
        if not (isinstance(aval.dtype, np.dtype) or dtypes.issubdtype(aval.dtype, dtypes.prng_key)):
            raise TypeError(f"Expected numpy or prng.KeyTy dtype, got {type(aval.dtype)}.")
        return cls(shape=aval.shape, dtype=aval.dtype)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def bytes(self) -> int:
        """Bytes of the whole array."""
        return self.size * self.dtype.itemsize

    @classmethod
    def total_bytes(cls, avals: Sequence[Any]) -> int:
        """Bytes of several arrays."""
        return sum(cls.from_aval(aval).bytes for aval in avals)


_Axes = dict[str, int]


@dataclass(frozen=True, kw_only=True)
class RooflineResult:
    """An estimate for one device.

    flops: operations of matrix products. unfused_flops: of everything. ici_bytes, ici_latency: by mesh axis, bytes that
    the busiest link carries, and hops. hbm_bytes: read and written by matrix products. peak_hbm_bytes: the most that is
    alive at once. unfused_hbm_bytes: read and written if each operation were a kernel.

    >>> one = mpijax.experimental.roofline.RooflineResult(flops=2, ici_bytes={"x": 8})
    >>> (one + one).flops, (one * 3).ici_bytes
    (4, {'x': 24})
    """

    flops: int = 0
    unfused_flops: int = 0
    ici_bytes: _Axes = field(default_factory=dict)
    ici_latency: _Axes = field(default_factory=dict)
    hbm_bytes: int = 0
    peak_hbm_bytes: int = 0
    unfused_hbm_bytes: int = 0

    @classmethod
    def zeros(cls) -> RooflineResult:
        """The estimate of nothing."""
        return cls()

    def __add__(self, other: RooflineResult) -> RooflineResult:
        return RooflineResult(
            flops=self.flops + other.flops,
            unfused_flops=self.unfused_flops + other.unfused_flops,
            ici_bytes=_sum(self.ici_bytes, other.ici_bytes),
            ici_latency=_sum(self.ici_latency, other.ici_latency),
            hbm_bytes=self.hbm_bytes + other.hbm_bytes,
            peak_hbm_bytes=max(self.peak_hbm_bytes, other.peak_hbm_bytes),
            unfused_hbm_bytes=self.unfused_hbm_bytes + other.unfused_hbm_bytes,
        )

    def __mul__(self, constant: float) -> RooflineResult:
        return RooflineResult(
            flops=int(self.flops * constant),
            unfused_flops=int(self.unfused_flops * constant),
            ici_bytes={k: int(v * constant) for k, v in self.ici_bytes.items()},
            ici_latency={k: int(v * constant) for k, v in self.ici_latency.items()},
            hbm_bytes=int(self.hbm_bytes * constant),
            peak_hbm_bytes=int(self.peak_hbm_bytes * constant),
            unfused_hbm_bytes=int(self.unfused_hbm_bytes * constant),
        )

    __rmul__ = __mul__


def _sum(a: _Axes, b: _Axes) -> _Axes:
    return {k: a.get(k, 0) + b.get(k, 0) for k in {**a, **b}}
