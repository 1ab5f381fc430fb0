"""Where backward rules put cotangents of operands."""

from __future__ import annotations

from typing import Any

from mpijax.transforms.zeros import Zero, add_tangents


class GradAccum:
    """Gathers the cotangent of one operand: `accum(ct)` adds to it. None and symbolic zeros add nothing."""

    def __init__(self, aval: Any):
        self.aval = aval

    def accum(self, ct: Any) -> None:
        raise NotImplementedError


class ValAccum(GradAccum):
    """Adds up cotangents in `value`, which starts as a symbolic zero."""

    def __init__(self, aval: Any):
        super().__init__(aval)
        self.value: Any = Zero(aval)

    def accum(self, ct: Any) -> None:
        if ct is not None:
            self.value = add_tangents(self.value, ct)


class NullAccum(GradAccum):
    """In place of one for an operand that is not differentiated: nothing is gathered."""

    def accum(self, ct: Any) -> None:
        pass
