"""Rows sent from every shard to every other, whose numbers are values of the program: for algorithms over ranks."""

from __future__ import annotations

from typing import Any

from mpijax.core.lowering import Communication, Exchange
from mpijax.core.primitive import Primitive, Unsupported
from mpijax.ops.collectives.scope import effects

_INNER = Unsupported("made where a program is compiled; transformations see the operation that sends rows this way")


def counted_all_to_all(x: Any, sendcounts: Any, recvcounts: Any, names: tuple[Any, ...], rows: int) -> Any:
    """The rows that the shards along named axes send to this one, one shard's after the other's.

    Args:
      x: rows for the shards, in their order, along the first axis.
      sendcounts, recvcounts: int32 vectors over the shards; all of `x` is sent, `rows` are received.

    Communicates one alltoallv.
    """
    return counted_all_to_all_p.bind(x, sendcounts, recvcounts, axis_name=names, rows=rows)


counted_all_to_all_p = Primitive(
    "counted_all_to_all",
    type_rule=lambda x, sendcounts, recvcounts, *, axis_name, rows: x.update(shape=(rows, *x.shape[1:])),
    reference=_INNER,
    lower=Communication(Exchange.ALLTOALL, counted=True),
    jvp=_INNER,
    transpose=_INNER,
    batch=_INNER,
    effects=effects("axis_name"),
    inner=True,
)
