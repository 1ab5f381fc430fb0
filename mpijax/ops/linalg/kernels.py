"""Lowers factorizations to machine code: LAPACK called by pointer on whole batches, without the GIL."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NoReturn

from mpijax.core.base import provided
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Native
from mpijax.core.types.avals import ShapedArray
from mpijax.ops.linalg.common import letter


@dataclass(frozen=True)
class LapackCode:
    """A call of one of the kernels of `_ext.lapack`, `_ext.reflectors` and `_ext.forms`."""

    label: str
    words: tuple[int, ...]

    def address(self) -> int:
        return provided.lapack_addresses()[self.label]

    def failed(self, *arrays: Any) -> NoReturn:
        raise JaxRuntimeError(f"INTERNAL: {self.label} failed")


def lapack(
    name: str, options: Callable[..., Sequence[int]] = lambda *_avals, **_params: (), matrix: int = -1, **more: Any
) -> Native:
    """The lowering to a kernel. Its words are the kind of number, the batch size, the matrix size, and options.

    options: `(*operand types, **params) -> ints`; raises for params that LAPACK does not support.
    matrix: the number of the operand whose type and size these are.
    more: further fields of `Native`.
    """

    def code(in_types: Sequence[ShapedArray], _out_types: Sequence[ShapedArray], **params: Any) -> LapackCode:
        of = in_types[matrix]
        kind = "sdcz".index(letter(of.dtype, name))
        stack = math.prod(of.shape[:-2])
        return LapackCode(name, (kind, stack, *of.shape[-2:], *map(int, options(*in_types, **params))))

    return Native(code, foreign=False, **more)
