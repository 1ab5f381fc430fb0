"""Loops and branches of arrays that are split over ranks: the cuts of carries and results.

A carry has the same cut in all iterations. It keeps its initial cut; if it starts whole, it takes the cut that the body
gives it; if the body needs it whole, it is whole. The cuts of a body's results are known only once it is built. If
carries then need other cuts, the body is dropped and built again. The cuts found are kept for the same body and the
same cuts of its inputs, so an inner loop is not built repeatedly with the outer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.graph.flow import FlowBuilder
from mpijax.compiler.graph.regions import OpenRegion
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.compiler.sharding.redistribute import recut
from mpijax.core.programs.jaxpr import ClosedJaxpr
from mpijax.core.sharding.cuts import Cuts, even_cut, mesh_axes, uncut

# A carry whose cut still changes after this many attempts becomes whole.
TRIES = 4


class CutLoop(FlowBuilder):
    """A loop or branch with operands that are split over one mesh."""

    def __init__(self, builder, eqn, source, p: Partitioner, mesh):
        super().__init__(builder, eqn, source)
        self.p, self.mesh = p, mesh

    def _cuts_of(self, v, ndim: int) -> Cuts:
        blocks = self.p.blocks_of(v)
        return (None,) * ndim if blocks is None or blocks.mesh != self.mesh else blocks.cuts

    def cuts(self, v) -> Cuts:
        return self._cuts_of(v, v.aval.ndim)

    def parts(self, avals, cuts: Sequence[Cuts]) -> list[Any]:
        return [Blocks(self.mesh, a.shape, c) for a, c in zip(avals, cuts, strict=True)]

    def recut(self, v, cuts: Cuts):
        return recut(self.p, v, self.mesh, cuts, self.source)

    def left(self, closed: ClosedJaxpr, body: OpenRegion) -> list[Cuts]:
        return [self._cuts_of(v, a.ndim) for a, v in zip(closed.out_avals, body.outs, strict=True)]

    def carried(self, closed: ClosedJaxpr, consts, first, others=()) -> tuple[list[Cuts], list[Cuts], OpenRegion]:
        cuts = [self.cuts(v) for v in first]
        avals = closed.in_avals[len(consts) : len(consts) + len(cuts)]
        key = closed.jaxpr, self.mesh, *map(self._known_by, consts), *cuts, *(part for _, part in others)
        tried = self.p.known.tried
        settled, cuts = key in tried, tried.get(key, cuts)
        fixed = [[False] * a.ndim for a in avals]
        for attempt in range(TRIES + 1):
            before = [(table, len(table)) for table in self.builder.tables()]
            body = self.opened(closed, [*consts, *zip(avals, self.parts(avals, cuts), strict=True), *others])
            outs = self.left(closed, body)
            each = zip(avals, cuts, outs, fixed, strict=False)
            wanted = [_kept(a.shape, have, out, held, attempt) for a, have, out, held in each]
            if settled or wanted == cuts:
                break
            for table, length in before:
                while len(table) > length:
                    table.pop() if isinstance(table, list) else table.popitem()
            settled = attempt + 1 == TRIES
            cuts = [uncut(a.shape) for a in avals] if settled else wanted
        tried[key] = cuts
        return cuts, outs, body

    def _known_by(self, v) -> Any:
        """The properties of an outer value that decide the cuts of results."""
        special = v.scalar is not None or v in self.p.views or v.outside is not None
        return v if special else None, self.p.blocks_of(v)

    def results(self, operands, regions, position, avals, cuts: Sequence[Cuts]) -> list[Any]:
        blocks = self.parts(avals, cuts)
        local = [a.update(shape=b.local_shape) for a, b in zip(avals, blocks, strict=True)]
        outs = super().results(operands, regions, position, local, cuts)
        return [self.p.held_as(v, b, b.sharding, True, self.source) for v, b in zip(outs, blocks, strict=True)]


def _kept(shape, have: Cuts, out: Cuts, fixed: list[bool], attempt: int) -> Cuts:
    """The next cut of a carry that enters the body as `have` and leaves it as `out`. fixed: axes that stay whole."""
    found = list(have)
    for d, (h, o) in enumerate(zip(have, out, strict=True)):
        if fixed[d] or h == o or (h is not None and o is not None):
            continue
        if o is not None and attempt == 0 and not set(o.axes) & set(mesh_axes(tuple(found))):
            found[d] = even_cut(shape[d], o.axes, o.parts)
        elif h is not None:
            found[d], fixed[d] = None, True
        else:
            fixed[d] = True
    return tuple(found)
