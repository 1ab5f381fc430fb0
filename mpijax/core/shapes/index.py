"""Defines index expressions: positions in an operand as functions of loop variables.

A `Lin` is `offset + sum(coefficient * atom)`. Atoms are loop variables, quotients and remainders of other `Lin`s
(from reshapes that merge axes), and values computed at run time (from gathers and dynamic slices).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


class LoopVar:
    """A loop variable running over `range(size)`."""

    __slots__ = ("size", "name")

    def __init__(self, size: int, name: str = "i"):
        self.size = size
        self.name = name

    def __repr__(self) -> str:
        return f"{self.name}<{self.size}>"


class Quotient:
    """`of // by`, an atom."""

    __slots__ = ("of", "by")

    def __init__(self, of: Lin, by: int):
        self.of, self.by = of, by

    def key(self):
        return ("//", self.of.key, self.by)


class Remainder:
    """`of % by`, an atom."""

    __slots__ = ("of", "by")

    def __init__(self, of: Lin, by: int):
        self.of, self.by = of, by

    def key(self):
        return ("%", self.of.key, self.by)


class Dynamic:
    """An integer computed at run time, known to be in `range(size)`."""

    __slots__ = ("expr", "size")

    def __init__(self, expr: Any, size: int):
        self.expr, self.size = expr, size

    def key(self):
        return ("dyn", id(self.expr))


def atom_key(atom):
    return id(atom) if type(atom) is LoopVar else atom.key()


class Lin:
    """A linear form in atoms. Immutable."""

    __slots__ = ("offset", "terms", "_key")

    def __init__(self, offset: int, terms: Iterable[tuple[Any, int]] = ()):
        merged: dict[Any, tuple[Any, int]] = {}
        for atom, c in terms:
            k = atom_key(atom)
            old = merged.get(k)
            merged[k] = (atom, c if old is None else old[1] + c)
        self.offset = offset
        self.terms = tuple(t for t in merged.values() if t[1] != 0)
        self._key: Any = None

    @property
    def key(self):
        if self._key is None:
            self._key = (self.offset, tuple(sorted(((str(atom_key(a)), c) for a, c in self.terms))))
        return self._key

    def __add__(self, other: Lin | int) -> Lin:
        if isinstance(other, Lin):
            return Lin(self.offset + other.offset, self.terms + other.terms)
        return Lin(self.offset + int(other), self.terms)

    def __mul__(self, factor: int) -> Lin:
        return Lin(self.offset * factor, [(a, c * factor) for a, c in self.terms])

    def __neg__(self) -> Lin:
        return self * -1

    def __sub__(self, other: Lin | int) -> Lin:
        return self + (-other)

    def bounds(self) -> tuple[int, int]:
        """The smallest and the largest possible value."""
        low = high = self.offset
        for atom, c in self.terms:
            last = _largest(atom)
            if c >= 0:
                high += c * last
            else:
                low += c * last
        return low, high

    def divmod(self, by: int) -> tuple[Lin, Lin]:
        """Quotient and remainder by a positive constant, simplified if the bounds allow."""
        if by == 1:
            return self, Lin(0)
        whole = Lin(self.offset // by, [(a, c // by) for a, c in self.terms if c % by == 0])
        rest = Lin(self.offset % by, [(a, c) for a, c in self.terms if c % by != 0])
        low, high = rest.bounds()
        if low < 0:
            # Shift to a nonnegative value: the generated division is unsigned.
            turns = -(low // by)
            whole, rest = whole - turns, rest + turns * by
            low, high = low + turns * by, high + turns * by
        if high < by:
            return whole, rest
        if not rest.terms:
            return whole, rest
        return whole + Lin(0, [(Quotient(rest, by), 1)]), Lin(0, [(Remainder(rest, by), 1)])

    def substitute(self, values: dict[int, Lin]) -> Lin:
        """Replace loop variables, by `id`."""
        out = Lin(self.offset)
        for atom, c in self.terms:
            if type(atom) is LoopVar:
                out = out + values[id(atom)] * c if id(atom) in values else out + Lin(0, [(atom, c)])
            elif type(atom) is Dynamic:
                out = out + Lin(0, [(atom, c)])
            else:
                inner = atom.of.substitute(values)
                q, r = inner.divmod(atom.by)
                out = out + (q if type(atom) is Quotient else r) * c
        return out

    def __repr__(self) -> str:
        return f"Lin({self.offset}, {self.terms})"


def _largest(atom) -> int:
    if type(atom) is LoopVar or type(atom) is Dynamic:
        return max(atom.size - 1, 0)
    if type(atom) is Remainder:
        return atom.by - 1
    return max(atom.of.bounds()[1] // atom.by, 0)


def var(v: LoopVar) -> Lin:
    """The loop variable itself; the constant 0 for a loop with one iteration."""
    return Lin(0) if v.size == 1 else Lin(0, [(v, 1)])


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """Strides, in elements, of a dense array."""
    strides = []
    step = 1
    for d in reversed(shape):
        strides.append(step)
        step *= d
    return tuple(reversed(strides))


def linearized(index: tuple[Lin, ...], shape: tuple[int, ...]) -> Lin:
    """The position of an element in a dense array. Joins quotients and remainders of the same form."""
    return joined(_raw_sum(index, row_major(shape)))


def _raw_sum(index, strides) -> Lin:
    out = Lin(0)
    for i, s in zip(index, strides, strict=True):
        out = out + i * s
    return out


def joined(form: Lin) -> Lin:
    """Simplifies `(x // n) * (n * s) + (x % n) * s` to `x * s`."""
    pairs = [(a, c) for a, c in form.terms if type(a) in (Quotient, Remainder)]
    if len(pairs) < 2:
        return form
    for a, c in pairs:
        if type(a) is not Remainder:
            continue
        for b, d in pairs:
            if type(b) is Quotient and b.by == a.by and d == c * a.by and b.of.key == a.of.key:
                rest = Lin(form.offset, [t for t in form.terms if t[0] is not a and t[0] is not b])
                return joined(rest + a.of * c)
    return form


def delinearize(position: Lin, shape: tuple[int, ...]) -> tuple[Lin, ...]:
    """The index of the element at a position in a dense array."""
    index = []
    for size in reversed(shape[1:]):
        position, r = position.divmod(size)
        index.append(r)
    if shape:
        index.append(position)
    return tuple(reversed(index))


def reindexed(index: tuple[Lin, ...], shape: tuple[int, ...], new_shape: tuple[int, ...]) -> tuple[Lin, ...]:
    """The index in `new_shape` of the element at `index` of a dense array of `shape` (a reshape).

    Axes are matched in groups of equal products, so untouched axes stay as they are. Along axes of size 1 the index is
    0, even if bounds do not show it: reads of a concatenation's operand use an index of the whole result.
    """
    if 0 in shape:
        # The array has no element, and products of sizes do not determine groups.
        return (Lin(0),) * len(new_shape)
    if 1 in shape or 1 in new_shape:
        long = [d for d, n in enumerate(shape) if n != 1]
        found = iter(reindexed(tuple(index[d] for d in long), tuple(shape[d] for d in long),
                               tuple(n for n in new_shape if n != 1)))  # fmt: skip
        return tuple(Lin(0) if n == 1 else next(found) for n in new_shape)
    out: list[Lin] = []
    i = j = 0
    while i < len(shape) or j < len(new_shape):
        pi = shape[i] if i < len(shape) else 1
        pj = new_shape[j] if j < len(new_shape) else 1
        ei, ej = min(i + 1, len(shape)), min(j + 1, len(new_shape))
        while pi != pj:
            if pi < pj:
                pi *= shape[ei]
                ei += 1
            else:
                pj *= new_shape[ej]
                ej += 1
        group = linearized(tuple(index[i:ei]), tuple(shape[i:ei]))
        out.extend(delinearize(group, tuple(new_shape[j:ej])))
        i, j = ei, ej
    return tuple(out)
