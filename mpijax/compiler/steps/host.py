"""A primitive as the function of a host call: data that says what to call, so that plans can be kept on disk."""

from __future__ import annotations

from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive
from mpijax.core.rules.registry import registry


@dataclass(frozen=True)
class PrimitiveCall:
    """Call the NumPy function of a primitive on arrays; the result is a list."""

    primitive: Primitive
    params: dict[str, Any]

    def __call__(self, *arrays):
        primitive = self.primitive
        fun = primitive.lower.fun if isinstance(primitive.lower, HostCall) else primitive.reference
        out = fun(*arrays, **self.params)
        return list(out) if primitive.multiple_results else [out]

    def _plain_(self) -> tuple[str, dict[str, Any]]:
        return self.primitive.key, self.params

    @staticmethod
    def _from_plain_(key: str, params: dict[str, Any]) -> PrimitiveCall:
        return PrimitiveCall(registry[key], params)
