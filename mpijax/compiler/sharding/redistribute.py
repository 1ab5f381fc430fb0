"""Redistributes a value from one cut to another, sending only the elements that change rank.

Along an array axis that stays cut over the same mesh axes, each rank keeps the elements it needs, and neighbours send
the rest (halos, shifts, reversals). An axis that becomes whole is gathered. If the cut moves from one array axis to
another, ranks run an alltoall. Cutting a whole axis is free.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from mpijax import lax
from mpijax.compiler.graph.conversions import conversion_of
from mpijax.compiler.graph.nodes import Node
from mpijax.compiler.sharding.blocks import Blocks, blocks_by, place_in
from mpijax.compiler.sharding.messages import ON_ONE_RANK, communicate_here
from mpijax.compiler.sharding.partitioner import Partitioner
from mpijax.core import dtypes
from mpijax.core.base.lazy_dataclass import dataclass
from mpijax.core.rules.lowering import OverRanks
from mpijax.core.rules.primitive import Primitive
from mpijax.core.sharding.cuts import Cut, Cuts, Span, count, even_cut, part_number, uncut


class Transfer(NamedTuple):
    """Rows `[low, high)` of the receiver, from one part to another. The sender stores them `shift` rows earlier."""

    sender: int
    receiver: int
    low: int
    high: int
    shift: int


class Round:
    """Transfers in which each part sends at most once and receives at most once.

    table: one row per transfer, one column per field.
    """

    def __init__(self, table: np.ndarray):
        self.table = table

    def __len__(self) -> int:
        return len(self.table)

    def __iter__(self) -> Iterator[Transfer]:
        return map(Transfer._make, self.table.tolist())

    @property
    def width(self) -> int:
        """The number of rows of the longest transfer."""
        return int((self.table[:, _HIGH] - self.table[:, _LOW]).max())

    @property
    def perm(self) -> tuple[tuple[int, int], ...]:
        """(sender, receiver) of each transfer."""
        return tuple(map(tuple, self.table[:, [_SENDER, _RECEIVER]].tolist()))  # type: ignore[arg-type]

    def sent_by(self, part: int) -> Transfer | None:
        return self._of(_SENDER, part)

    def received_by(self, part: int) -> Transfer | None:
        return self._of(_RECEIVER, part)

    def _of(self, column: int, part: int) -> Transfer | None:
        found = self.table[self.table[:, column] == part].tolist()
        return Transfer(*found[0]) if found else None


_SENDER, _RECEIVER, _LOW, _HIGH, _SHIFT = range(5)


def transfers(have: Cut, need: Cut, period: int = 0) -> list[Round]:
    """The transfers from cut `have` to cut `need`, in rounds.

    have: its parts are consecutive. period: the length of a periodic axis, else 0. Rows past the end then equal the
    first rows; with a negative period, rows before the start equal the last rows.
    """
    table = _overlaps(have, need, 0)
    again = np.zeros(len(table), np.int64)
    if period:
        moved = _overlaps(have, need, period)
        again = np.append(again, _pairs(moved, have.parts, table))
        table = np.concatenate([table, moved])
    away = table[:, _SENDER] != table[:, _RECEIVER]
    table, again = table[away], again[away]
    if not len(table):
        return []
    # Nearest neighbours first, alternating between below and above.
    distance = (table[:, _RECEIVER] - table[:, _SENDER]) % have.parts
    order = np.lexsort((table[:, _RECEIVER], again, distance, np.minimum(distance, have.parts - distance)))
    table, group = table[order], np.stack([distance, again], 1)[order]
    borders = np.flatnonzero((group[1:] != group[:-1]).any(1)) + 1
    busiest = max(np.bincount(table[:, column]).max() for column in (_SENDER, _RECEIVER))
    if len(borders) < busiest:
        return [Round(rows) for rows in np.split(table, borders)]
    return _packed(table)


def _overlaps(have: Cut, need: Cut, shift: int) -> np.ndarray:
    """The transfers: the rows of each part of `need` that each part of `have`, shifted by `shift`, contains."""
    first = np.searchsorted(have.highs + shift, need.lows, "right")
    many = np.maximum(np.searchsorted(have.lows + shift, need.highs, "left") - first, 0)
    receiver = np.repeat(np.arange(need.parts), many)
    sender = np.arange(len(receiver)) - np.repeat(np.cumsum(many) - many, many) + first[receiver]
    low = np.maximum(need.lows[receiver], have.lows[sender] + shift)
    high = np.minimum(need.highs[receiver], have.highs[sender] + shift)
    table = np.stack([sender, receiver, low, high, np.full_like(low, shift)], 1)
    return table[low < high]


def _pairs(table: np.ndarray, parts: int, other: np.ndarray) -> np.ndarray:
    """1 for each transfer whose sender and receiver also have a transfer in the other table, else 0."""
    mine, others = (t[:, _SENDER] * parts + t[:, _RECEIVER] for t in (table, other))
    return np.isin(mine, others).astype(np.int64)


def _packed(table: np.ndarray) -> list[Round]:
    """Packs transfers greedily into few rounds: each round takes, in order, those whose parts are still free."""
    rounds = []
    while len(table):
        taken: list[np.ndarray] = []
        free = np.arange(len(table))
        while len(free):
            senders, receivers = table[free, _SENDER], table[free, _RECEIVER]
            first = np.intersect1d(np.unique(senders, return_index=True)[1], np.unique(receivers, return_index=True)[1])
            taken.append(free[first])
            left = ~np.isin(senders, senders[first]) & ~np.isin(receivers, receivers[first])
            free = free[left]
        chosen = np.sort(np.concatenate(taken))
        rounds.append(Round(table[chosen]))
        table = np.delete(table, chosen, 0)
    return rounds


def _common_rows(a: Span, b: Span, period: int) -> list[tuple[int, int, int]]:
    """The rows of `a` that are in `b`, or in `b` shifted by the period; each range with its shift."""
    rows = ((max(a[0], b[0] + s), min(a[1], b[1] + s), s) for s in ((0, period) if period else (0,)))
    return [(low, high, s) for low, high, s in rows if low < high]


class Redistribution:
    """Redistributes values of one graph over one mesh."""

    def __init__(self, p: Partitioner, mesh: Any, source: Any):
        self.p, self.mesh, self.source = p, mesh, source
        self.sizes = mesh.processes_along

    def move(self, v: Any, have: Blocks, want: Cuts) -> Any:
        """This rank's part of an array in the cuts `want`, whose spans may overlap."""
        if v.scalar is not None or have.cuts == want:
            return v
        key = (v, self.mesh, want)
        known = self.p.moved.get(key)
        if known is None:
            known = self.p.moved[key] = self._moved(v, have, want)
        return known

    def _moved(self, v: Any, have: Blocks, want: Cuts) -> Any:
        of = self._transpose_of(v, have, want)
        if of is not None:
            source, blocks, order = of
            cuts = tuple(want[order.index(d)] for d in range(len(order)))
            shape = have.recut(want).local_shape
            return self._pure(lax.transpose_p, {"permutation": order}, [self.move(source, blocks, cuts)], shape)
        conversion = self._widening(v, have)
        if conversion is not None:
            sent = self.move(conversion.inputs[0], have, want)
            aval = v.aval.update(shape=sent.aval.shape)
            return self.p.graph.node(conversion.primitive, conversion.params, [sent], [aval], self.source)[0]
        # One axis at a time, so that values share intermediate steps.
        for dim, (h, w) in enumerate(zip(have.cuts, want, strict=True)):
            if h is not None and w is not None and h != w and h.axes == w.axes:
                v, have = self._shifted(v, have, dim, w)
        for a, b, cut in _swaps(have, want):
            v, have = self._turned(v, have, a, b, cut)
        for dim, (h, w) in enumerate(zip(have.cuts, want, strict=True)):
            if h is not None and h != w and not _is_even(h, have.shape[dim]):
                v, have = self._made_even(v, have, dim)
        want_even = tuple(
            w if w is None or w == h or _is_even(w, n) else None
            for n, h, w in zip(have.shape, have.cuts, want, strict=True)
        )
        v, have = self._regrouped(v, have, want_even)
        for dim, w in enumerate(want):
            if w is not None and have.cuts[dim] != w:
                v = self._cut_out(v, dim, have.span(w))
        return v

    def _transpose_of(self, v: Any, have: Blocks, want: Cuts) -> tuple[Any, Blocks, tuple[int, ...]] | None:
        """The source of the transpose `v`, if gathering it along its first axis is cheaper than gathering `v`."""
        of = self.p.turned.get(v)
        if of is None:
            return None
        _, blocks, order = of
        first = order.index(0)
        gathers = first > 0 and have.cuts[first] is not None and want[first] is None
        return of if gathers and all(have.cuts[d] == blocks.cuts[at] for d, at in enumerate(order)) else None

    def _widening(self, v: Any, have: Blocks) -> Node | None:
        """The conversion that made `v` from narrower elements, which are sent in its place: from float32 to complex64,
        from bool to float32."""
        node = conversion_of(v)
        if node is None or node.params.get("sharding") is not None:
            return None
        [x] = node.inputs
        narrower = dtypes.itemsize_bits(x.aval.dtype) < dtypes.itemsize_bits(v.aval.dtype)
        known = x not in self.p.known.unreduced and v not in self.p.known.unreduced
        return node if narrower and known and self.p.blocks_of(x) == have else None

    # ------------------------------------------------------------ along one axis

    def _shifted(self, v: Any, have: Blocks, dim: int, want: Cut) -> tuple[Any, Blocks]:
        cuts = (*have.cuts[:dim], want, *have.cuts[dim + 1 :])
        after = have.recut(cuts)
        key = (v, self.mesh, cuts)
        known = self.p.moved.get(key)
        if known is None:
            origin = self.p.views.get(v)
            if origin is not None and origin.reaches(dim, want):
                out = origin.read(self, dim, want)
            else:
                out = self._exchanged(v, dim, have.cuts[dim], want)
            known = self.p.moved[key] = out
        return known, after

    def rotated(self, v: Any, have: Blocks, dim: int, by: int) -> Any:
        """This rank's part of an array rotated by `by` rows."""
        cut, n = have.cuts[dim], have.shape[dim]
        assert cut is not None
        by = by if by <= n // 2 else by - n
        want = cut.mapped(lambda at: at - by)
        return self._exchanged(v, dim, cut, want, -n if by > 0 else n)

    def _exchanged(self, v: Any, dim: int, have: Cut | None, want: Cut, period: int = 0) -> Any:
        assert have is not None
        me = part_number(have.axes, self.sizes, place_in(self.mesh))
        begin, end = have.part(me)
        low, high = want.part(me)
        pieces: list[tuple[int, Any]] = []
        for first, last, shift in _common_rows((low, high), (begin, end), period):
            pieces.append((first, self._cut_out(v, dim, (first - shift - begin, last - shift - begin))))
        for round_ in transfers(have, want, period):
            width = round_.width
            payload = self._payload(v, dim, begin, end, round_.sent_by(me), width)
            got = self._permuted(payload, have.axes, round_.perm)
            mine = round_.received_by(me)
            if mine is not None:
                offset = mine.low - mine.shift - _start(have.part(mine.sender), mine, width)
                pieces.append((mine.low, self._cut_out(got, dim, (offset, offset + mine.high - mine.low))))
        pieces.sort(key=lambda p: p[0])
        if not pieces:
            return self._cut_out(v, dim, (0, 0))
        return self._joined([x for _, x in pieces], dim)

    def _payload(self, v: Any, dim: int, begin: int, end: int, sent: Transfer | None, width: int) -> Any:
        """The `width` rows that this rank sends in a round; the receiver takes those it needs."""
        if sent is not None:
            start = _start((begin, end), sent, width) - begin
            rows = self._cut_out(v, dim, (max(start, 0), min(start + width, end - begin)))
        else:
            rows = self._cut_out(v, dim, (0, min(width, end - begin)))
        missing = width - rows.aval.shape[dim]
        return rows if missing == 0 else self._padded(rows, dim, missing)

    def _made_even(self, v: Any, have: Blocks, dim: int) -> tuple[Any, Blocks]:
        cut, n = have.cuts[dim], have.shape[dim]
        assert cut is not None
        if n % cut.parts == 0:
            return self._shifted(v, have, dim, even_cut(n, cut.axes, cut.parts))
        width = cut.widest
        rows = v.aval.shape[dim]
        v = v if rows == width else self._padded(v, dim, width - rows)
        v = self._gathered(v, dim, cut.axes)
        v = self._without_padding(v, dim, cut)
        return v, have.recut((*have.cuts[:dim], None, *have.cuts[dim + 1 :]))

    # ------------------------------------------------------------ between axes, with even blocks

    def _regrouped(self, v: Any, have: Blocks, want: Cuts) -> tuple[Any, Blocks]:
        held = [() if c is None else c.axes for c in have.cuts]
        wanted = [() if c is None else c.axes for c in want]
        keep = [h == w for h, w in zip(have.cuts, want, strict=True)]
        common = [_common(h, w) for h, w in zip(held, wanted, strict=True)]
        gone = [() if k else h[len(c) :] for h, c, k in zip(held, common, keep, strict=True)]
        new = [() if k else w[len(c) :] for w, c, k in zip(wanted, common, keep, strict=True)]
        v = self._by_alltoall(v, gone, new)
        # Cut early where possible, to gather less; an axis that will be gathered cannot be cut first, blocks would mix.
        going = {a for axes in gone for a in axes}
        early = [() if g or set(n) & going else n for g, n in zip(gone, new, strict=True)]
        v = self._cut_blocks(v, early)
        for dim, axes in enumerate(gone):
            if axes:
                v = self._gathered(v, dim, axes)
        v = self._cut_blocks(v, [() if e else n for e, n in zip(early, new, strict=True)])
        return v, have.recut(want)

    def _by_alltoall(self, v: Any, gone: list, new: list) -> Any:
        """Moves a cut from one array axis to another with an alltoall."""
        for a, axes in enumerate(gone):
            for b, wanted in enumerate(new):
                if axes and axes == wanted and not gone[b] and not new[a]:
                    parts, shape = count(axes, self.sizes), list(v.aval.shape)
                    shape[a] *= parts
                    shape[b] //= parts
                    params = {
                        "split_axis": b, "concat_axis": a, "axis_name": axes, "axis_index_groups": None, "tiled": True
                    }  # fmt: skip
                    v = self._communicated(v, lax.all_to_all_p, params, shape)
                    gone[a] = new[b] = axes = ()
        return v

    def _turned(self, v: Any, have: Blocks, a: int, b: int, want: Cut) -> tuple[Any, Blocks]:
        """Moves the cut from array axis `a` to `b` with uneven blocks: one alltoall, blocks padded to the longest."""
        cut = have.cuts[a]
        assert cut is not None
        v = self._lengthened(v, a, cut.widest)
        v = self._with_padding(v, b, want)
        params = {
            "split_axis": b, "concat_axis": a, "axis_name": cut.axes, "axis_index_groups": None, "tiled": True
        }  # fmt: skip
        shape = list(v.aval.shape)
        shape[a], shape[b] = cut.parts * cut.widest, want.widest
        v = self._communicated(v, lax.all_to_all_p, params, shape)
        if not cut.is_even:
            v = self._without_padding(v, a, cut)
        cuts = list(have.cuts)
        cuts[a], cuts[b] = None, want
        low, high = have.span(want)
        return self._cut_out(v, b, (0, high - low)), have.recut(tuple(cuts))

    def _cut_blocks(self, v: Any, new: Sequence[tuple]) -> Any:
        """This rank's part along the array axes that `new` splits."""
        place = place_in(self.mesh) if any(new) else {}
        for dim, axes in enumerate(new):
            if axes:
                size = v.aval.shape[dim] // count(axes, self.sizes)
                block = part_number(axes, self.sizes, place)
                v = self._cut_out(v, dim, (block * size, (block + 1) * size))
        return v

    # ------------------------------------------------------------ nodes

    def _cut_out(self, v: Any, dim: int, span: Span) -> Any:
        shape = v.aval.shape
        if span == (0, shape[dim]):
            return v
        starts, limits = [0] * len(shape), list(shape)
        starts[dim], limits[dim] = span
        params = {"start_indices": tuple(starts), "limit_indices": tuple(limits), "strides": None}
        return self._pure(lax.slice_p, params, [v], (*shape[:dim], span[1] - span[0], *shape[dim + 1 :]))

    def _joined(self, pieces: list, dim: int) -> Any:
        if len(pieces) == 1:
            return pieces[0]
        shape = list(pieces[0].aval.shape)
        shape[dim] = sum(p.aval.shape[dim] for p in pieces)
        return self._pure(lax.concatenate_p, {"dimension": dim}, pieces, shape)

    def _with_padding(self, v: Any, dim: int, cut: Cut) -> Any:
        """An array in which each part of an axis is padded to the longest part."""
        ends = [*(at for _, at in cut.runs[1:]), cut.parts * cut.widest]
        groups = zip(cut.runs, ends, strict=True)
        return self._joined(
            [self._lengthened(self._cut_out(v, dim, span), dim, end - at) for (span, at), end in groups], dim
        )

    def _without_padding(self, v: Any, dim: int, cut: Cut) -> Any:
        """An array without the padding of `_with_padding`."""
        kept = [(at, at + high - low) for (low, high), at in cut.runs if high > low]
        return self._joined([self._cut_out(v, dim, span) for span in kept or [(0, 0)]], dim)

    def _lengthened(self, v: Any, dim: int, size: int) -> Any:
        rows = v.aval.shape[dim]
        return v if rows == size else self._padded(v, dim, size - rows)

    def _padded(self, v: Any, dim: int, rows: int) -> Any:
        shape = list(v.aval.shape)
        config = [(0, 0, 0)] * len(shape)
        config[dim] = (0, rows, 0)
        shape[dim] += rows
        zero = self.p.graph.literal(v.element.type(0), v.aval.update(shape=(), dtype=v.element))
        return self._pure(lax.pad_p, {"padding_config": tuple(config)}, [v, zero], shape)

    def _pure(self, primitive: Primitive, params: dict, inputs: list, shape: Sequence[int]) -> Any:
        aval = inputs[0].aval.update(shape=tuple(shape))
        return self.p.graph.node(primitive, params, inputs, [aval], self.source)[0]

    def _gathered(self, v: Any, dim: int, axes: tuple) -> Any:
        parts, shape = count(axes, self.sizes), list(v.aval.shape)
        shape[dim] *= parts
        params = {
            "all_gather_dimension": dim, "axis_name": axes, "axis_index_groups": None, "axis_size": parts, "tiled": True
        }  # fmt: skip
        return self._communicated(v, lax.all_gather_p, params, shape)

    def _permuted(self, v: Any, axes: tuple, perm: tuple) -> Any:
        return self._communicated(v, lax.ppermute_p, {"axis_name": axes, "perm": perm}, v.aval.shape)

    def _communicated(self, v: Any, primitive: Primitive, params: dict, shape: Sequence[int]) -> Any:
        return communicate_here(self.p, self.mesh, primitive, params, v, shape, self.source)


def extreme_of_all(p: Partitioner, v: Any, over: tuple, op: OverRanks, mesh: Any, source: Any) -> Any:
    """The max or min of the ranks' partial results for complex numbers, which MPI does not compare.

    Communicates one allgather.
    """
    move, shape = Redistribution(p, mesh, source), v.aval.shape
    row = move._pure(lax.reshape_p, {"new_sizes": (1, *shape), "dimensions": None, "sharding": None}, [v], (1, *shape))
    together = move._gathered(row, 0, over)
    return move._pure(ON_ONE_RANK[op], {"axes": (0,), "out_sharding": None}, [together], shape)


@dataclass(frozen=True)
class SliceView:
    """A value that is a slice of another, with unit strides; its halos are read from the source.

    source: the sliced value. blocks: its blocks. starts: where the slice begins in the whole source. ends: where it
    ends there.
    """

    source: Any
    blocks: Blocks
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def reaches(self, dim: int, want: Cut) -> bool:
        """Whether the source is cut along this axis over the same mesh axes as `want`."""
        cut = self.blocks.cuts[dim]
        return cut is not None and cut.axes == want.axes

    def read(self, by: Redistribution, dim: int, want: Cut) -> Any:
        """This rank's part of the slice, cut along `dim` as `want`."""
        begin = self.starts[dim]
        empty = want.lengths <= 0
        needed = want.mapped(lambda at: begin + np.where(empty, 0, at))
        cuts = (*self.blocks.cuts[:dim], needed, *self.blocks.cuts[dim + 1 :])
        v = by.move(self.source, self.blocks, cuts)
        for d, cut in enumerate(self.blocks.cuts):
            if d == dim:
                continue
            low, high = (0, self.blocks.shape[d]) if cut is None else self.blocks.span(cut)
            v = by._cut_out(v, d, (max(self.starts[d], low) - low, max(min(self.ends[d], high) - low, 0)))
        return v


def rotation(views: Sequence[SliceView | None], dim: int) -> tuple[SliceView, int] | None:
    """If two slices of one array form a rotation of it: one slice, and the number of rows it is rotated by."""
    if len(views) != 2:
        return None
    end, start = views
    if end is None or start is None or end.source is not start.source:
        return None
    shape = end.blocks.shape
    others = [d for d in range(len(shape)) if d != dim]
    whole = all(v.starts[d] == 0 and v.ends[d] == shape[d] for v in (end, start) for d in others)
    joined = start.starts[dim] == 0 and start.ends[dim] == end.starts[dim] and end.ends[dim] == shape[dim]
    cut = end.blocks.cuts[dim]
    if not whole or not joined or cut is None or not cut.follows or cut.size != shape[dim]:
        return None
    return end, shape[dim] - end.starts[dim]


def _swaps(have: Blocks, want: Cuts) -> list[tuple[int, int, Cut]]:
    """Cuts that move between array axes with uneven blocks: the old axis, the new axis, and the new cut."""
    pairs = []
    for a, gone in enumerate(have.cuts):
        for b, new in enumerate(want):
            if gone is None or new is None or want[a] is not None or have.cuts[b] is not None or gone.axes != new.axes:
                continue
            if new.follows and new.size == have.shape[b] and not (gone.is_even and new.is_even):
                pairs.append((a, b, new))
    return pairs


def _is_even(cut: Cut, size: int) -> bool:
    return size % cut.parts == 0 and cut == even_cut(size, cut.axes, cut.parts)


def _start(span: Span, t: Transfer, width: int) -> int:
    """The first row that a part sends in a round of `width` rows, clipped so that the rows stay inside the part."""
    return max(min(t.low - t.shift, span[1] - width), span[0])


def _common(have: tuple, want: tuple) -> tuple:
    k = 0
    while k < min(len(have), len(want)) and have[k] == want[k]:
        k += 1
    return have[:k]


# ---------------------------------------------------------------- entry points


def recut(p: Partitioner, v, mesh, cuts, source):
    """This rank's part of a value in the given cuts, whose spans may overlap."""
    have = p.blocks_of(v)
    p.note_unequal(cuts)
    if have is not None and have.mesh != mesh:
        v, have = gathered(p, v, source), None
    if v.scalar is not None:
        return v
    if v.outside is not None and p.outer is not None and p.graph.leaves:  # send loop-invariant values before the loop
        return p.graph.local(recut(p.outer, v.outside, mesh, cuts, source))
    if have is None:
        have = Blocks(mesh, v.aval.shape, uncut(v.aval.shape))
    return Redistribution(p, mesh, source).move(v, have, cuts)


def redistributed(p: Partitioner, v, sharding, source):
    """This rank's shard of a value in another sharding."""
    shape = p.global_aval(v).shape
    wanted = Blocks(sharding.mesh, shape, uncut(shape)) if sharding.keeps_whole else blocks_by(sharding, shape)
    return recut(p, v, sharding.mesh, wanted.cuts, source)


def moved_to(p: Partitioner, v, sharding, source, new: bool = False):
    """A value redistributed to a sharding, which is recorded for it. new: whether the value was just made."""
    first = len(p.nodes)
    out = redistributed(p, v, sharding, source)
    return p.marked(out, sharding, new or out in p.made_since(first), source)


def gathered(p: Partitioner, v, source):
    """The whole array of a value, on every rank. Communicates one allgather per split axis."""
    blocks = p.blocks_of(v)
    return v if blocks is None else recut(p, v, blocks.mesh, uncut(blocks.shape), source)
