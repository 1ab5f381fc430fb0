"""A small pretty-printing engine: documents of text, breaks, groups and nesting, laid out in a given width.

After P. Wadler, "A prettier printer": a group is printed on one line when it fits,
otherwise each of its own breaks becomes a new line at the current indentation.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


class Doc:
    """A document; `+` concatenates."""

    __slots__ = ()

    def __add__(self, other: Doc) -> Doc:
        return Concat((self, other))


@dataclass(frozen=True, slots=True)
class Text(Doc):
    text: str


@dataclass(frozen=True, slots=True)
class Break(Doc):
    flat: str = " "


@dataclass(frozen=True, slots=True)
class Concat(Doc):
    parts: tuple


@dataclass(frozen=True, slots=True)
class Group(Doc):
    child: Doc


@dataclass(frozen=True, slots=True)
class Nest(Doc):
    by: int
    child: Doc


def text(s: str) -> Doc:
    """Text; line breaks in it become forced breaks at the margin."""
    return Text(s)


def brk(flat: str = " ") -> Doc:
    return Break(flat)


def concat(parts: Iterable[Doc]) -> Doc:
    return Concat(tuple(parts))


def group(doc: Doc) -> Doc:
    return Group(doc)


def nest(by: int, doc: Doc) -> Doc:
    return Nest(by, doc)


def join(separator: Doc, docs: Iterable[Doc]) -> Doc:
    parts: list[Doc] = []
    for doc in docs:
        if parts:
            parts.append(separator)
        parts.append(doc)
    return Concat(tuple(parts))


def render(doc: Doc, width: int = 80) -> str:
    """Lay a document out in `width` columns."""
    out: list[str] = []
    column = 0
    stack: list[tuple[int, bool, Doc]] = [(0, False, doc)]
    while stack:
        indent, flat, node = stack.pop()
        if isinstance(node, Text):
            out.append(node.text)
            column += len(node.text)
        elif isinstance(node, Concat):
            stack.extend((indent, flat, part) for part in reversed(node.parts))
        elif isinstance(node, Nest):
            stack.append((indent + node.by, flat, node.child))
        elif isinstance(node, Group):
            stack.append((indent, flat or _fits(node.child, width - column, stack), node.child))
        elif flat:
            out.append(node.flat)
            column += len(node.flat)
        else:
            out.append("\n" + " " * indent)
            column = indent
    return "".join(out)


def _fits(doc: Doc, room: int, rest: list) -> bool:
    """Whether `doc` in one line, with what follows up to the next possible break, fits in `room`."""
    pending: list[tuple[bool, Doc]] = [(True, doc)]
    upcoming = len(rest)
    while room >= 0:
        if not pending:
            if upcoming == 0:
                return True
            upcoming -= 1
            _, flat, node = rest[upcoming]
            pending.append((flat, node))
            continue
        flat, node = pending.pop()
        if isinstance(node, Text):
            room -= len(node.text)
        elif isinstance(node, Concat):
            pending.extend((flat, part) for part in reversed(node.parts))
        elif isinstance(node, Nest):
            pending.append((flat, node.child))
        elif isinstance(node, Group):
            pending.append((flat, node.child))
        elif flat:
            room -= len(node.flat)
        else:
            return True
    return False
