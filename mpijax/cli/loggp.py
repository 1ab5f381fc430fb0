"""The LogGP model of communication (Alexandrov, Ionescu, Schauser, Scheiman 1995): the cost of an exchange for a rank.

A message of `n` bytes occupies its sender for `o + n G`, takes the latency `L`, and occupies its receiver for `o`. An
exchange of many ranks is a number of rounds, given by the algorithms of MPI libraries: in each round, every rank sends
and receives one message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import Exchange


@dataclass(frozen=True)
class Cost:
    """Seconds of one rank. sending: busy with its own messages. waiting: until other ranks' messages arrive."""

    sending: float = 0.0
    waiting: float = 0.0

    def __add__(self, other: Cost) -> Cost:
        return Cost(self.sending + other.sending, self.waiting + other.waiting)

    def __mul__(self, factor: float) -> Cost:
        return Cost(self.sending * factor, self.waiting * factor)

    @property
    def total(self) -> float:
        return self.sending + self.waiting


@dataclass(frozen=True)
class LogGP:
    """L: latency. o: processor time per message. Both in seconds. G: seconds per byte of a long message."""

    L: float
    o: float
    G: float

    def rounds(self, number: float, nbytes: float) -> Cost:
        """The cost of `number` rounds in which a rank sends `nbytes` in total."""
        return Cost(number * self.o + nbytes * self.G, number * (self.L + self.o))


@dataclass(frozen=True)
class RankGroup:
    """The ranks of an exchange and the number of their nodes. here: this rank's number among them."""

    ranks: int
    nodes: int = 1
    here: int = 0

    @property
    def on_node(self) -> int:
        return -(-self.ranks // self.nodes)


def _doublings(ranks: int) -> int:
    return math.ceil(math.log2(ranks)) if ranks > 1 else 0


def _cheapest(*ways: Cost) -> Cost:
    return min(ways, key=lambda way: way.total)


def _whole(net: LogGP, p: int, n: float) -> Cost:
    """Recursive doubling, or a binomial tree; or a (reduce_)scatter and an allgather (Rabenseifner)."""
    steps = _doublings(p)
    return _cheapest(net.rounds(steps, steps * n), net.rounds(2 * steps, 2 * n * (p - 1) / p))


def _halves(net: LogGP, p: int, n: float) -> Cost:
    return net.rounds(_doublings(p), n * (p - 1) / p)


def _prefixes(net: LogGP, p: int, n: float) -> Cost:
    return net.rounds(_doublings(p), _doublings(p) * n)


def _gathered(net: LogGP, p: int, n: float) -> Cost:
    return net.rounds(_doublings(p), n * (p - 1))


def _alltoall(net: LogGP, p: int, n: float) -> Cost:
    """Bruck's algorithm; or one message to each rank."""
    return _cheapest(net.rounds(_doublings(p), _doublings(p) * n / 2), net.rounds(p - 1, n * (p - 1) / p))


# By exchange: the cost for `p` ranks of one level (those of a node, or one of each node) with an operand of `n` bytes;
# and whether a node sends the data of each of its ranks to other nodes, or one message for all.
_Level = Callable[[LogGP, int, float], Cost]
_COLLECTIVES: dict[Exchange, tuple[_Level, bool]] = {
    Exchange.ALLREDUCE: (_whole, False),
    Exchange.REDUCE: (_whole, False),
    Exchange.BCAST: (_whole, False),
    Exchange.SCAN: (_prefixes, False),
    Exchange.EXSCAN: (_prefixes, False),
    Exchange.REDUCE_SCATTER: (_halves, False),
    Exchange.SCATTER: (_halves, False),
    Exchange.BARRIER: (_prefixes, False),
    Exchange.ALLGATHER: (_gathered, True),
    Exchange.GATHER: (_gathered, True),
    Exchange.ALLTOALL: (_alltoall, True),
}
# The operation of `mpijax bench` with which an exchange is measured.
_MEASURED = {
    Exchange.ALLREDUCE: "allreduce", Exchange.REDUCE: "bcast", Exchange.BCAST: "bcast", Exchange.SCAN: "allreduce",
    Exchange.EXSCAN: "allreduce", Exchange.REDUCE_SCATTER: "alltoall", Exchange.SCATTER: "bcast",
    Exchange.BARRIER: "allreduce", Exchange.ALLGATHER: "allgather", Exchange.GATHER: "allgather",
    Exchange.ALLTOALL: "alltoall", Exchange.PERMUTE: "sendrecv", Exchange.SENDRECV: "sendrecv",
}  # fmt: skip


class Network:
    """The costs on a machine: `within` a node and `between` nodes.

    rows: measurements of ``mpijax bench`` within a node, on `measured` ranks. For exchanges within a node, the model is
    scaled to agree with them.
    """

    def __init__(self, within: LogGP, between: LogGP, rows: Sequence[dict[str, Any]] = (), measured: int = 0):
        self.within, self.between, self.measured = within, between, measured
        self.rows = list(rows)
        self._rows: dict[str, list[tuple[float, float]]] = {}
        for row in rows:
            self._rows.setdefault(row["operation"], []).append((row["bytes"], row["us"] / 1e6))

    def collective(self, exchange: Exchange, group: RankGroup, nbytes: float) -> Cost:
        """The cost of an exchange of all ranks of a group: within each node first, then one rank of each node."""
        level, each = _COLLECTIVES[exchange]
        if group.ranks == 1:
            return Cost()
        inside = level(self.within, group.on_node, nbytes) * self._measured_over_model(exchange, nbytes)
        if group.nodes == 1:
            return inside
        return inside + level(self.between, group.nodes, nbytes * group.on_node if each else nbytes)

    def message(self, nbytes: float, other_node: bool, sends: bool = True, receives: bool = True) -> Cost:
        """The cost of a message to, and from, one other rank."""
        net = self.between if other_node else self.within
        scale = 1.0 if other_node else self._measured_over_model(Exchange.SENDRECV, nbytes)
        sent = Cost(net.o + nbytes * net.G) if sends else Cost()
        received = Cost(0.0, net.L + net.o + (0 if sends else nbytes * net.G)) if receives else Cost()
        return (sent + received) * scale

    def _measured_over_model(self, exchange: Exchange, nbytes: float) -> float:
        """The ratio of measured to modelled time of an exchange; 1 without a measurement."""
        rows = self._rows.get(_MEASURED.get(exchange, ""))
        if not rows or self.measured < 2:
            return 1.0
        what = next(kind for kind, name in _MEASURED.items() if name == _MEASURED[exchange])

        def ratio(row: tuple[float, float]) -> float:
            return row[1] / self._model(what, row[0]).total

        rows = sorted(rows)
        for low, high in zip(rows, rows[1:], strict=False):
            if nbytes <= high[0]:  # interpolate linearly in the logarithm of the bytes
                part = math.log(max(nbytes, low[0]) / low[0]) / math.log(high[0] / low[0])
                return ratio(low) ** (1 - part) * ratio(high) ** part
        return ratio(rows[-1])

    def _model(self, exchange: Exchange, nbytes: float) -> Cost:
        if exchange in _COLLECTIVES:
            return _COLLECTIVES[exchange][0](self.within, self.measured, nbytes)
        return self.within.rounds(1, nbytes)

    def as_data(self) -> dict[str, Any]:
        return {"within": asdict(self.within), "between": asdict(self.between), "measured_on_ranks": self.measured}
