"""`CostEstimate` and `estimate_cost`: the work of a function."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable
from functools import partial
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.programs.jaxpr import Jaxpr, subjaxprs
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.trees import tree
from mpijax.transforms.api import make_jaxpr

_ELEMENTWISE = frozenset("add mul sub div min max or and xor neg floor ceil round not".split())
_TRANSCENDENTAL = frozenset("cos sin tan sinh cosh tanh acos asin atan exp log logistic sqrt".split())


@dataclass(frozen=True)
class CostEstimate:
    """Work of a kernel: floating-point operations, transcendental functions, bytes read and written, and bytes sent.

    Raises ValueError if a field is not an int.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.CostEstimate(flops=10, transcendentals=0, bytes_accessed=40)
    CostEstimate(flops=10, transcendentals=0, bytes_accessed=40, remote_bytes_transferred=0)
    """

    flops: int
    transcendentals: int
    bytes_accessed: int
    remote_bytes_transferred: int = 0

    def __post_init__(self) -> None:
        for name, value in dataclasses.asdict(self).items():
            if not isinstance(value, int):
                raise ValueError(
                    f"All fields in CostEstimate must be ints. {name} is not an int: {type(value)}({value})"
                )

    def to_json(self) -> bytes:
        """The fields as JSON."""
        return json.dumps(dataclasses.asdict(self)).encode("ascii")


def estimate_cost(fun: Callable, *args: Any, **kwargs: Any) -> CostEstimate:
    """The work of `fun` for its arguments, which may be `ShapeDtypeStruct`s, counted operation by operation.

    Elementwise operations count once for each element, products twice for each pair of factors. Bytes are those of
    arguments and results. Loops and branches are not counted.

    >>> from mpijax.experimental import pallas as pl
    >>> pl.estimate_cost(lambda a, b: jnp.sin(a @ b), jnp.ones((2, 4)), jnp.ones((4, 3)))
    CostEstimate(flops=48, transcendentals=6, bytes_accessed=104, remote_bytes_transferred=0)
    """
    closed = make_jaxpr(partial(fun, **kwargs))(*args)
    flops, transcendentals = _work(closed.jaxpr)
    count = len(tree.tree_leaves(args))
    moved = sum(a.size * a.dtype.itemsize for a in (*closed.in_avals[:count], *closed.out_avals))
    return CostEstimate(flops, transcendentals, moved)


def _work(jaxpr: Jaxpr) -> tuple[int, int]:
    """Floating-point operations and transcendental functions."""
    flops = transcendentals = 0
    for eqn in jaxpr.eqns:
        name, size = eqn.primitive.name, eqn.outvars[0].aval.size if eqn.outvars else 0
        if isinstance(eqn.primitive.lower, InlineJaxpr):
            more = [_work(inner) for inner in subjaxprs(eqn.params)][:1]
            flops += sum(f for f, _ in more)
            transcendentals += sum(t for _, t in more)
        elif name in _ELEMENTWISE:
            flops += size
        elif name in _TRANSCENDENTAL:
            transcendentals += size
        elif name == "integer_pow":
            flops += size * _multiplications(abs(eqn.params["y"]))
        elif name == "dot_general":
            (contracted, _), _batch = eqn.params["dimension_numbers"]
            flops += 2 * size * math.prod(eqn.invars[0].aval.shape[i] for i in contracted)
    return flops, transcendentals


def _multiplications(y: int) -> int:
    """Of a power by repeated squares."""
    return y.bit_length() - 1 + y.bit_count() if y > 1 else 0
