"""Defines an all-to-all of rows whose counts are values of the program, for algorithms over ranks."""

from __future__ import annotations

from typing import Any

from mpijax.core.rules.lowering import Communication, Exchange
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.ops.collectives.scope import effects

_INNER = Unsupported("only the compiler makes this primitive, after all transformations")


def counted_all_to_all(
    x: Any, sendcounts: Any, recvcounts: Any, names: tuple[Any, ...], rows: int, share: float = 1.0
) -> Any:
    """The rows that the shards along named axes send to this shard, in the order of the shards.

    Args:
      x: the rows to send along the first axis, in the order of the receiving shards.
      sendcounts, recvcounts: int32 vectors over the shards, with at most as many rows as `x` and the result have. The
        result ends with zeros if fewer than `rows` rows are received.
      share: how much of `x` is sent on average, for reports of the bytes sent.

    Communicates one alltoallv.
    """
    return counted_all_to_all_p.bind(x, sendcounts, recvcounts, axis_name=names, rows=rows, share=share)


counted_all_to_all_p = Primitive(
    "counted_all_to_all",
    type_rule=lambda x, sendcounts, recvcounts, *, axis_name, rows, share: x.update(shape=(rows, *x.shape[1:])),
    reference=_INNER,
    lower=Communication(Exchange.ALLTOALL, counted=True),
    jvp=_INNER,
    transpose=_INNER,
    batch=_INNER,
    effects=effects("axis_name"),
    inner=True,
)
