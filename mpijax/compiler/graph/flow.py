"""Loops and branches on parts of arrays: how carries, arguments and results of their bodies are cut.

A body is tried in a graph that is thrown away, to see how its results come out. It is tried once for the same cuts of
what it reads, so loops inside of each other are not tried again with the outer ones. A carry must be cut alike in all
turns: it keeps the cut it comes in with, takes the one that the body gives where it comes in whole, and is whole where
the body needs it whole.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mpijax.compiler.graph import regions
from mpijax.compiler.sharding import partition
from mpijax.compiler.sharding.blocks import Blocks
from mpijax.core import effects as fx
from mpijax.core.sharding.cuts import Cuts, even_cut, mesh_axes, uncut
from mpijax.core.sharding.rules import Plan

# Turns after which a carry that still changes becomes whole.
TRIES = 4


def spread(builder, eqn, inputs: list[Any], avals, source) -> list[Any]:
    """The results of a loop or branch, each as this rank's part."""
    mesh = next(b.mesh for v in inputs if (b := partition.blocks_of(builder, v)) is not None)
    kinds = {"cond": _cond, "while": _while, "scan": _scan}
    return kinds[eqn.primitive.lower.kind](_Spread(builder, mesh, eqn, source), inputs, avals)


class _Spread:
    """A loop or branch over one mesh."""

    def __init__(self, builder, mesh, eqn, source):
        self.builder, self.mesh, self.eqn, self.source = builder, mesh, eqn, source

    def cuts(self, v) -> Cuts:
        blocks = partition.blocks_of(self.builder, v)
        return uncut(v.aval.shape) if blocks is None or blocks.mesh != self.mesh else blocks.cuts

    def blocks(self, aval, cuts: Cuts) -> Blocks:
        return Blocks(self.mesh, aval.shape, cuts)

    def recut(self, v, cuts: Cuts):
        return partition.recut(self.builder, v, self.mesh, cuts, self.source)

    def tried(self, closed, args: Sequence[Any]) -> list[Cuts]:
        """How the results of a body come out. args: values from outside, or blocks of new ones with their types."""
        key = id(closed.jaxpr), self.mesh, tuple(self._known_by(a) for a in args)
        if key not in self.builder.tried:
            self.builder.tried[key] = self._tried(closed, args), closed, args  # which keeps what `key` names
        return self.builder.tried[key][0]

    def _known_by(self, arg: Any) -> Any:
        """What of an argument decides how results come out."""
        if isinstance(arg, tuple):
            return arg[1].cuts
        blocks = partition.blocks_of(self.builder, arg)
        special = arg.scalar is not None or id(arg) in self.builder.views or arg.outside is not None
        return (id(arg) if special else None), None if blocks is None else (blocks.mesh, blocks.cuts)

    def _tried(self, closed, args: Sequence[Any]) -> list[Cuts]:
        child = self.builder.child(False)
        inner = [regions.argument(child, *a) if isinstance(a, tuple) else a for a in args]
        outs = child.inline(regions.needed(closed), inner, self.source)
        found = (partition.blocks_of(child, v) for v in outs)
        return [
            uncut(a.shape) if b is None or b.mesh != self.mesh else b.cuts
            for a, b in zip(closed.out_avals, found, strict=True)
        ]

    def carried(self, closed, consts: Sequence[Any], cuts: list[Cuts], others: Sequence[Any]) -> tuple[list, list]:
        """How carries are cut in every turn, and all results of the body with them."""
        avals = closed.in_avals[len(consts) : len(consts) + len(cuts)]
        fixed = [[False] * a.ndim for a in avals]
        for turn in range(TRIES):
            args = [*consts, *((a, self.blocks(a, c)) for a, c in zip(avals, cuts, strict=True)), *others]
            outs = self.tried(closed, args)
            wanted = [
                _kept(a.shape, have, out, held, turn)
                for a, have, out, held in zip(avals, cuts, outs, fixed, strict=False)
            ]
            if wanted == cuts:
                return cuts, outs
            cuts = wanted
        return [uncut(a.shape) for a in avals], outs

    def finished(self, outs: list[Any], avals, cuts: Sequence[Cuts]) -> list[Any]:
        """The results of the operation, known as parts of arrays."""
        results = []
        for v, a, c in zip(outs, avals, cuts, strict=True):
            blocks = self.blocks(a, c)
            results.append(partition.held_as(self.builder, v, blocks, blocks.sharding, True, self.source))
        return results


def _kept(shape, have: Cuts, out: Cuts, fixed: list[bool], turn: int) -> Cuts:
    """The cut of a carry that comes in by `have` and leaves a turn by `out`. fixed: axes that became whole stay so."""
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


def _cond(s: _Spread, inputs, avals) -> list[Any]:
    index, *operands = inputs
    branches = s.eqn.params["branches"]
    if index.scalar is not None:
        return regions.control_node(s.builder, s.eqn, inputs, avals, s.source)
    index = s.recut(index, ())
    tried = [s.tried(b, operands) for b in branches]
    cuts = [next((c for c in each if any(c)), each[0]) for each in zip(*tried, strict=True)]
    blocks = [s.blocks(a, c) for a, c in zip(avals, cuts, strict=True)]
    bodies = [
        regions.make_region(s.builder, b, operands, s.source, leaves=False, out_blocks=blocks) for b in branches
    ]
    local = [a.update(shape=b.local_shape) for a, b in zip(avals, blocks, strict=True)]
    return s.finished(s.builder.control(s.eqn, [index], bodies, local, s.source), avals, cuts)


def _while(s: _Spread, inputs, avals) -> list[Any]:
    p = s.eqn.params
    nc, nb = p["cond_nconsts"], p["body_nconsts"]
    consts, first = inputs[nc : nc + nb], inputs[nc + nb :]
    cuts, _ = s.carried(p["body_jaxpr"], consts, [s.cuts(v) for v in first], ())
    blocks = [s.blocks(a, c) for a, c in zip(avals, cuts, strict=True)]
    carries = [(a, b) for a, b in zip(avals, blocks, strict=True)]
    same = [(k, nb + k) for k in range(len(carries))]
    cond = regions.make_region(s.builder, p["cond_jaxpr"], [*inputs[:nc], *carries], s.source, leaves=True)
    body = regions.make_region(
        s.builder, p["body_jaxpr"], [*consts, *carries], s.source, leaves=True, carries=same, out_blocks=blocks
    )
    local = [a.update(shape=b.local_shape) for a, b in zip(avals, blocks, strict=True)]
    first = [s.recut(v, c) for v, c in zip(first, cuts, strict=True)]
    return s.finished(s.builder.control(s.eqn, first, [cond, body], local, s.source), avals, cuts)


def _mapped(s: _Spread, inputs, avals) -> list[Any] | None:
    """A scan without carries along an axis that is split (`lax.map`): each rank does its own turns.

    None where it is not one, or where turns read what is split: ranks with fewer turns would not communicate in all.
    """
    p = s.eqn.params
    n, eqn = p["num_consts"], s.eqn
    if p["num_carry"] or fx.pins(eqn.effects):
        return None
    cut = next((c for v in inputs[n:] if (c := s.cuts(v)[0]) is not None), None)
    split = any(any(s.cuts(v)) for v in inputs[:n]) or any(any(s.cuts(v)[1:]) for v in inputs[n:])
    if cut is None or split:
        return None
    cuts = [(cut, *uncut(a.shape[1:])) for a in avals]
    low, high = s.blocks(avals[0], cuts[0]).span(cut)
    xs = [s.recut(v, (cut, *uncut(v.aval.shape[1:]))) for v in inputs[n:]]
    plan = Plan([], cuts, {**p, "length": high - low})
    results = [s.blocks(a, c) for a, c in zip(avals, cuts, strict=True)]
    outs = partition.done_here(s.builder, eqn, plan, [*inputs[:n], *xs], avals, results, s.source)
    return s.finished(outs, avals, cuts)


def _scan(s: _Spread, inputs, avals) -> list[Any]:
    mapped = _mapped(s, inputs, avals) if avals else None
    if mapped is not None:
        return mapped
    p = s.eqn.params
    n, m = p["num_consts"], p["num_carry"]
    consts, first, xs = inputs[:n], inputs[n : n + m], inputs[n + m :]
    body_avals = p["jaxpr"].in_avals
    slices = [(a, s.blocks(a, s.cuts(v)[1:])) for a, v in zip(body_avals[n + m :], xs, strict=True)]
    cuts, outs = s.carried(p["jaxpr"], consts, [s.cuts(v) for v in first], slices)
    stacked = outs[m:]
    blocks = [s.blocks(a, c) for a, c in zip(p["jaxpr"].out_avals, [*cuts, *stacked], strict=True)]
    carries = list(zip(body_avals[n : n + m], blocks[:m], strict=True))
    same = [(k, n + k) for k in range(m)]
    body = regions.make_region(
        s.builder, p["jaxpr"], [*consts, *carries, *slices], s.source, leaves=True, carries=same, merge_from=m,
        out_blocks=blocks,
    )  # fmt: skip
    all_cuts = [*cuts, *((None, *c) for c in stacked)]
    local = [a.update(shape=s.blocks(a, c).local_shape) for a, c in zip(avals, all_cuts, strict=True)]
    places = [body.position.index(at) for at in range(len(body.graph.outputs))]
    rest = [s.recut(v, c) for v, c in zip(first, cuts, strict=True)]
    rest += [s.recut(v, (None, *s.cuts(v)[1:])) for v in xs]
    results = s.builder.control(s.eqn, rest, [body], [local[k] for k in places], s.source)
    made = [results[at] for at in body.position]
    return s.finished(made, avals, all_cuts)
