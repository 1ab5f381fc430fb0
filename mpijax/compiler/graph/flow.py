"""Builds loops and branches: their bodies as regions, and the cuts (splits over ranks) of carries and results.

A carry has the same cut in all iterations. It keeps its initial cut; if it starts whole, it takes the cut that the body
gives it; if the body needs it whole, it is whole. The cuts of a body's results are known only once it is built. If
carries then need other cuts, the body is dropped and built again. The cuts found are kept for the same body and the
same cuts of its inputs, so an inner loop is not built repeatedly with the outer one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.graph.regions import Body, opened
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.compiler.sharding.redistribute import recut
from mpijax.core.jaxpr import ClosedJaxpr
from mpijax.core.lowering import Flow
from mpijax.core.sharding.cuts import Cuts, even_cut, mesh_axes, uncut
from mpijax.ops.shapes import reshape_p

# A carry whose cut still changes after this many attempts becomes whole.
TRIES = 4


def control_node(builder, eqn, inputs: list[Any], avals, source) -> list[Any]:
    """The results of a loop or branch. Its inputs are the operands, then what its regions capture.

    A branch with a known index is inlined, as is the body of a scan of length 1.
    """
    kind = {Flow.COND: _cond, Flow.WHILE: _while, Flow.SCAN: _scan}[eqn.primitive.lower.kind]
    p = builder.partitioner
    held = [] if p is None else [b for v in inputs if (b := p.blocks_of(v)) is not None]
    return kind(_Loop(builder, p, held[0].mesh if held else None, eqn, source), inputs, avals)


class _Loop:
    """A loop or branch over one mesh. mesh: None if no operand is split; then nothing is cut, and it is built once."""

    def __init__(self, builder, p, mesh, eqn, source):
        self.builder, self.p, self.mesh, self.eqn, self.source = builder, p, mesh, eqn, source

    def cuts(self, v) -> Cuts:
        blocks = None if self.mesh is None else self.p.blocks_of(v)
        return uncut(v.aval.shape) if blocks is None or blocks.mesh != self.mesh else blocks.cuts

    def blocks(self, avals, cuts: Sequence[Cuts]) -> list[Blocks | None]:
        """The shards of values with these whole types; None each without a mesh."""
        return [self.mesh and Blocks(self.mesh, a.shape, c) for a, c in zip(avals, cuts, strict=True)]

    def recut(self, v, cuts: Cuts):
        return v if self.mesh is None else recut(self.p, v, self.mesh, cuts, self.source)

    def opened(self, closed: ClosedJaxpr, args: Sequence[Any], leaves: bool = True) -> Body:
        return opened(self.builder, closed, args, self.source, leaves)

    def left(self, closed: ClosedJaxpr, body: Body) -> list[Cuts]:
        """The cuts of a body's results."""
        found = [None if self.mesh is None else self.p.blocks_of(v) for v in body.outs]
        return [
            uncut(a.shape) if b is None or b.mesh != self.mesh else b.cuts
            for a, b in zip(closed.out_avals, found, strict=True)
        ]

    def carried(self, closed: ClosedJaxpr, consts, first, others=()) -> tuple[list[Cuts], list[Cuts], Body]:
        """The cuts of carries in every iteration, the cuts of all results of the body, and the body.

        others: types and blocks of the arguments that change each iteration, such as slices.
        """
        cuts = [self.cuts(v) for v in first]
        avals = closed.in_avals[len(consts) : len(consts) + len(cuts)]
        key = closed.jaxpr, self.mesh, *map(self._known_by, consts), *cuts, *(b for _, b in others)
        tried = {key: cuts} if self.mesh is None else self.p.known.tried
        settled, cuts = key in tried, tried.get(key, cuts)
        fixed = [[False] * a.ndim for a in avals]
        for turn in range(TRIES + 1):
            before = [(table, len(table)) for table in self.builder.tables()]
            body = self.opened(closed, [*consts, *zip(avals, self.blocks(avals, cuts), strict=True), *others])
            outs = self.left(closed, body)
            each = zip(avals, cuts, outs, fixed, strict=False)
            wanted = [_kept(a.shape, have, out, held, turn) for a, have, out, held in each]
            if settled or wanted == cuts:
                break
            for table, length in before:
                while len(table) > length:
                    table.pop() if isinstance(table, list) else table.popitem()
            settled = turn + 1 == TRIES
            cuts = [uncut(a.shape) for a in avals] if settled else wanted
        tried[key] = cuts
        return cuts, outs, body

    def _known_by(self, v) -> Any:
        """The properties of an outer value that decide the cuts of results."""
        if self.mesh is None:
            return None
        special = v.scalar is not None or v in self.p.views or v.outside is not None
        return v if special else None, self.p.blocks_of(v)

    def results(self, operands, regions, position, avals, cuts: Sequence[Cuts]) -> list[Any]:
        """The results of the operation. position: for each result, its position among the results of the regions."""
        blocks = self.blocks(avals, cuts)
        local = [a if b is None else a.update(shape=b.local_shape) for a, b in zip(avals, blocks, strict=True)]
        places = [position.index(at) for at in range(len(regions[-1].graph.outputs))]
        made = self.builder.control(self.eqn, operands, regions, [local[k] for k in places], self.source)
        return self.held([made[at] for at in position], blocks)

    def held(self, outs: list[Any], blocks: Sequence[Blocks | None]) -> list[Any]:
        """The values, recorded as shards of arrays."""
        return [
            v if b is None else self.p.held_as(v, b, b.sharding, True, self.source)
            for v, b in zip(outs, blocks, strict=True)
        ]


def _kept(shape, have: Cuts, out: Cuts, fixed: list[bool], turn: int) -> Cuts:
    """The next cut of a carry that enters the body as `have` and leaves it as `out`. fixed: axes that stay whole."""
    found = list(have)
    for d, (h, o) in enumerate(zip(have, out, strict=True)):
        if fixed[d] or h == o or (h is not None and o is not None):
            continue
        if o is not None and turn == 0 and not set(o.axes) & set(mesh_axes(tuple(found))):
            found[d] = even_cut(shape[d], o.axes, o.parts)
        elif h is not None:
            found[d], fixed[d] = None, True
        else:
            fixed[d] = True
    return tuple(found)


def _cond(s: _Loop, inputs, avals) -> list[Any]:
    index, *operands = inputs
    branches = s.eqn.params["branches"]
    if index.scalar is not None:
        return s.builder.inline(branches[min(max(int(index.scalar), 0), len(branches) - 1)], operands, s.source)
    index = s.recut(index, ())
    bodies = [s.opened(b, operands, leaves=False) for b in branches]
    left = zip(*map(s.left, branches, bodies), strict=True)
    cuts = [next((c for c in each if any(c)), each[0]) for each in left]
    regions = [body.closed(s.blocks(avals, cuts)) for body in bodies]
    return s.results([index], regions, range(len(avals)), avals, cuts)


def _while(s: _Loop, inputs, avals) -> list[Any]:
    p = s.eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    consts, first = inputs[nc : nc + nb], inputs[nc + nb :]
    cuts, _, body = s.carried(p["body_jaxpr"], consts, first)
    blocks = s.blocks(avals, cuts)
    cond = s.opened(p["cond_jaxpr"], [*inputs[:nc], *zip(avals, blocks, strict=True)]).closed([None])
    region = body.closed(blocks, carries=nb)
    first = [s.recut(v, c) for v, c in zip(first, cuts, strict=True)]
    return s.results(first, [cond, region], range(len(avals)), avals, cuts)


def _scan(s: _Loop, inputs, avals) -> list[Any]:
    p = s.eqn.params
    n, m = p["num_consts"], p["num_carry"]
    consts, first, xs = inputs[:n], inputs[n : n + m], inputs[n + m :]
    slices = p["jaxpr"].in_avals[n + m :]
    if p["length"] == 1:
        return _one_turn(s, [*consts, *first], xs, slices, avals)
    new = list(zip(slices, s.blocks(slices, [s.cuts(v)[1:] for v in xs]), strict=True))
    cuts, outs, body = s.carried(p["jaxpr"], consts, first, new)
    cuts = [*cuts, *outs[m:]]
    region = body.closed(s.blocks(p["jaxpr"].out_avals, cuts), carries=n, merge_from=m)
    rest = [s.recut(v, c) for v, c in zip(first, cuts, strict=False)]
    rest += [s.recut(v, (None, *s.cuts(v)[1:])) for v in xs]
    return s.results(rest, [region], region.position, avals, [*cuts[:m], *((None, *c) for c in cuts[m:])])


def _one_turn(s: _Loop, before, xs, slices, avals) -> list[Any]:
    """The results of a scan of length 1: the body is inlined."""

    def reshaped(v, aval):
        params = {"new_sizes": aval.shape, "dimensions": None, "sharding": None}
        return s.builder.pure(reshape_p, params, [s.builder.local(v)], [aval], s.source)[0]

    n = s.eqn.params["num_carry"]
    outs = s.builder.inline(s.eqn.params["jaxpr"], [*before, *map(reshaped, xs, slices)], s.source)
    return [*outs[:n], *map(reshaped, outs[n:], avals[n:])]
