"""Eigenvalues and eigenvectors of a Hermitian matrix whose rows or columns are split over ranks.

One-sided block Jacobi iteration. Let c be about twice the largest eigenvalue's magnitude and B = A + c I, which is
positive definite and has a condition number near 3. Rotations V make the columns of G = B V orthogonal. Then
G = V diag(w + c), so the norms of the columns of G give the eigenvalues and the columns themselves the eigenvectors.

Each rank holds two block columns of G. In a round it makes all columns of its two blocks orthogonal: the rotation is
the eigenvectors of the small matrix of their inner products, by LAPACK. Then the ranks pass blocks on, so that in a
sweep of 2 p - 1 rounds each two of the 2 p blocks meet once (a round-robin tournament; R. P. Brent and F. T. Luk, "The
solution of singular-value and symmetric eigenvalue problems on multiprocessor arrays", 1985). The block with the
smaller number takes the smaller eigenvalues, so all are in order when the sweeps end. Five to seven sweeps are usual.

No rank has more than its columns. But a sweep sends the matrix about twice, and all sweeps take more operations than
LAPACK. On 2 cores, 3,000 rows take 12 s on 2 or 4 ranks; LAPACK on each rank takes 3.5 and 7.6 s. So ranks gather a
matrix unless it is large, and on two ranks always: there the iteration takes as much memory as LAPACK.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from mpijax.core.base import config, provided
from mpijax.core.rules import sharding_rules as rules
from mpijax.core.rules.registry import registry
from mpijax.core.sharding.cuts import Cut, part_number
from mpijax.core.types.typeof import typeof
from mpijax.ops.collectives.exchange import all_to_all
from mpijax.ops.collectives.gather_scatter import all_gather
from mpijax.ops.collectives.permutations import ppermute
from mpijax.ops.collectives.reductions import pmax, psum
from mpijax.ops.elementwise.compare import eq, ge, le
from mpijax.ops.elementwise.select import select
from mpijax.ops.indexing.slicing import concatenate, slice_in_dim
from mpijax.ops.linalg.common import real_dtype
from mpijax.ops.linalg.matrices import adjoint, exact_product, eye
from mpijax.ops.reductions.standard import reduce_max, reduce_sum
from mpijax.ops.rules import const_like
from mpijax.ops.shapes.creation import broadcasted_iota, full_like, iota
from mpijax.ops.shapes.padding import pad

# Elements of a matrix up to which each rank gathers it.
GATHERED_UP_TO = 1 << 26
# Parts, at least, and at most: the program has a few operations for each round of a sweep.
FEWEST_PARTS, MOST_PARTS = 3, 32
# Sweeps, at most; clustered eigenvalues need up to 20.
MOST_SWEEPS = 30
# Steps of the power iteration that estimates the largest eigenvalue's magnitude.
POWER_STEPS = 12
# Products of different columns count as zero below this many times the rounding errors of such products.
ENOUGH = 2.0

_I32 = np.dtype(np.int32)


def plan(s: rules.Operation) -> rules.Plan | None:
    """The plan of `eigh` for one large split matrix."""
    [shape], [cuts] = s.shapes, s.cuts
    cut, n = cuts[-2] if cuts[-2] is not None else cuts[-1], shape[-1]
    gathered = len(shape) > 2 or n * n <= GATHERED_UP_TO or config.values.mpijax_same_bits
    if cut is None or gathered or s.params["subset_by_index"] not in (None, (0, n)):
        return None
    if not FEWEST_PARTS <= cut.parts <= min(MOST_PARTS, n // 2):
        return None
    width = -(-n // (2 * cut.parts))  # of a block
    borders = np.minimum(np.arange(cut.parts + 1) * 2 * width, n)
    columns = Cut.between(cut.axes, borders[:-1], borders[1:])
    ranks = _ColumnSplit(cut.axes, cut.parts, part_number(cut.axes, s.sizes, s.place), n, width)
    program = _by_rotations(ranks, s.params)
    return rules.Plan([(None, columns)], [(None, columns), (None,)], s.params, program=program)


class _ColumnSplit(NamedTuple):
    """Mesh axes, number of parts, this rank's part; size of the matrix, columns of a block."""

    axes: tuple[Any, ...]
    parts: int
    me: int
    n: int
    width: int

    @property
    def size(self) -> int:
        """Of the matrix that is filled up to whole blocks."""
        return 2 * self.parts * self.width


def _by_rotations(r: _ColumnSplit, params: Any) -> Callable[..., Any]:
    """This rank's eigenvectors, and all eigenvalues."""

    def program(x: Any) -> list[Any]:
        own = typeof(x).shape[1]
        a = _hermitian(r, x, params["lower"])
        scale = _not_zero(pmax(reduce_max(abs(a), (0, 1)), r.axes))  # squares neither overflow nor vanish
        a = a / scale.astype(a.dtype)
        shift = 2 * _not_zero(_largest_magnitude(r, a))
        left, right = _orthogonal_columns(r, _shifted(r, a, shift), shift, params)
        g = concatenate([left, right], 1)
        norms = _norms(g)
        vectors = slice_in_dim(slice_in_dim(g / norms.astype(g.dtype), 0, r.n), 0, own, axis=1)
        values = all_gather((norms - shift) * scale, r.axes, axis=0, tiled=True)
        return [vectors, slice_in_dim(values, 0, r.n)]

    return program


def _hermitian(r: _ColumnSplit, x: Any, lower: bool) -> Any:
    """This rank's columns of the matrix, of which `x` has the lower or the upper triangle; zeros behind the matrix."""
    own = typeof(x).shape[1]
    x = pad(x, const_like(x, 0), [(0, r.size - r.n, 0), (0, 2 * r.width - own, 0)])
    rows = all_to_all(x, r.axes, 0, 1, tiled=True)
    row, column = _places(r)
    full = select((ge if lower else le)(row, column), x, adjoint(rows))
    on_diagonal = eq(row, column)
    return select(on_diagonal, (full + full.conj()) / 2, full) if full.dtype.kind == "c" else full


def _places(r: _ColumnSplit) -> tuple[Any, Any]:
    """Row and column of each element of this rank's columns."""
    shape = (r.size, 2 * r.width)
    return broadcasted_iota(_I32, shape, 0), broadcasted_iota(_I32, shape, 1) + np.int32(2 * r.width * r.me)


def _largest_magnitude(r: _ColumnSplit, a: Any) -> Any:
    """An estimate, from below, of the largest magnitude of an eigenvalue."""
    rows = adjoint(a)
    # Fractional parts of multiples of the golden ratio: nearly as good as random numbers.
    v = (iota(_I32, r.size).astype(real_dtype(a.dtype)) * 0.618034 % 1 - 0.5).astype(a.dtype)
    for _ in range(POWER_STEPS):
        v = all_gather(exact_product(rows, v / _not_zero(_norms(v)).astype(a.dtype)), r.axes, axis=0, tiled=True)
    return _norms(v)


def _not_zero(x: Any) -> Any:
    """x, or 1 in the place of 0."""
    return select(eq(x, const_like(x, 0)), full_like(x, 1), x)


def _norms(x: Any) -> Any:
    """The norms of columns, or of one vector."""
    squares = (x * x.conj()).real if x.dtype.kind == "c" else x * x
    return reduce_sum(squares, (0,)) ** 0.5


def _shifted(r: _ColumnSplit, a: Any, shift: Any) -> Any:
    """The matrix with the shift on its diagonal; behind the matrix, what is larger than all eigenvalues."""
    row, column = _places(r)
    on_diagonal = select(ge(row, const_like(row, r.n)), full_like(a, 4), full_like(a, 1)) * shift.astype(a.dtype)
    return a + select(eq(row, column), on_diagonal, full_like(a, 0))


def _orthogonal_columns(r: _ColumnSplit, g: Any, shift: Any, params: Any) -> tuple[Any, Any]:
    """This rank's two blocks when all columns are orthogonal."""
    rounding = float(np.finfo(typeof(shift).dtype).eps) * r.size
    limit = (ENOUGH * rounding * shift * shift) ** 2

    def goes_on(state: Any) -> Any:
        sweep, products, _, _ = state
        return (sweep < MOST_SWEEPS) & (products > limit)

    def sweep(state: Any) -> Any:
        number, _, *blocks = state
        products, blocks = _sweep(r, blocks, params)
        return number + 1, psum(products, r.axes), *blocks

    blocks = slice_in_dim(g, 0, r.width, axis=1), slice_in_dim(g, r.width, None, axis=1)
    start = (np.int32(0), full_like(shift, np.inf), *blocks)
    _, _, left, right = provided.while_loop(goes_on, sweep, start)
    return left, right


def _sweep(r: _ColumnSplit, blocks: Any, params: Any) -> tuple[Any, Any]:
    """The sum of the squared products of different columns, and the blocks after each two have met."""
    products: Any = 0.0
    for numbers in tournament(r.parts):
        found, blocks = _rotated(blocks, numbers[r.me], params)
        products = products + found
        blocks = _passed_on(r, blocks)
    return products, blocks


def _rotated(blocks: Any, numbers: tuple[int, int], params: Any) -> tuple[Any, Any]:
    """Two blocks with orthogonal columns; the one with the smaller number has the shorter ones."""
    swapped = numbers[0] > numbers[1]
    x = concatenate(blocks[::-1] if swapped else blocks, 1)
    inner = exact_product(adjoint(x), x)
    n = typeof(inner).shape[0]
    different = select(eye(np.dtype(bool), (n, n)), full_like(inner, 0), inner)
    rotation, _ = registry["eigh"].bind(inner, **{**params, "lower": True, "subset_by_index": None})
    x = exact_product(x, rotation)
    first, second = slice_in_dim(x, 0, n // 2, axis=1), slice_in_dim(x, n // 2, None, axis=1)
    return reduce_sum(_norms(different) ** 2, (0,)), [second, first] if swapped else [first, second]


def _passed_on(r: _ColumnSplit, blocks: Any) -> list[Any]:
    """The blocks for the next round; see `tournament`."""
    top, bottom = blocks
    last = r.parts - 1
    up = ppermute(bottom if r.me == 0 else top, r.axes, [(k, k + 1) for k in range(last)])
    down = ppermute(bottom, r.axes, [(k, k - 1) for k in range(1, r.parts)])
    return [top if r.me == 0 else up, top if r.me == last else down]


def tournament(parts: int) -> list[list[tuple[int, int]]]:
    """For each round of a sweep the numbers of the two blocks that each rank has, `parts` being at least 2.

    The first block stays. All others move on by one place: along the upper places to the last rank, there down, and
    along the lower places back.
    """
    top, bottom = list(range(0, 2 * parts, 2)), list(range(1, 2 * parts, 2))
    rounds = []
    for _ in range(2 * parts - 1):
        rounds.append(list(zip(top, bottom, strict=True)))
        top, bottom = [top[0], bottom[0], *top[1:-1]], [*bottom[1:], top[-1]]
    return rounds
