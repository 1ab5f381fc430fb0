"""A small pretty printer: documents of text, breaks, groups and nesting, rendered to a given width.

After P. Wadler, "A prettier printer": a group is printed on one line if it fits;
otherwise each of its own breaks starts a new line at the current indentation.
"""

from __future__ import annotations

from collections.abc import Iterable

from mpijax.core.base.lazy_dataclass import dataclass


class Doc:
    """A document; `+` concatenates."""

    __slots__ = ()

    def __add__(self, other: Doc) -> Doc:
        return Concat((self, other))


@dataclass(frozen=True, slots=True)
class Text(Doc):
    text: str
    note: str = ""


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


def text(s: str, note: str = "") -> Doc:
    """Text; line breaks in it become forced breaks at the margin. note: a comment at the end of its line."""
    return Text(s, note)


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
    """The document as text of at most `width` columns where possible; comments are to the right of it."""
    out: list[str] = []
    notes: dict[int, list[str]] = {}
    line = 0
    column = 0
    stack: list[tuple[int, bool, Doc]] = [(0, False, doc)]
    while stack:
        indent, flat, node = stack.pop()
        if isinstance(node, Text):
            out.append(node.text)
            column += len(node.text)
            line += node.text.count("\n")
            if node.note:
                notes.setdefault(line, []).append(node.note)
        elif isinstance(node, Concat):
            stack.extend((indent, flat, part) for part in reversed(node.parts))
        elif isinstance(node, Nest):
            stack.append((indent + node.by, flat, node.child))
        elif isinstance(node, Group):
            stack.append((indent, flat or _fits(node.child, width - column), node.child))
        elif flat:
            out.append(node.flat)  # type: ignore[attr-defined]
            column += len(node.flat)  # type: ignore[attr-defined]
        else:
            out.append("\n" + " " * indent)
            column = indent
            line += 1
    return _with_notes("".join(out), notes) if notes else "".join(out)


def _with_notes(text: str, notes: dict[int, list[str]]) -> str:
    """The text with the notes of each line in one column, one below the other."""
    lines = text.split("\n")
    column = max(map(len, lines))
    for i, found in notes.items():
        places = (lines[i], *[""] * (len(found) - 1))
        lines[i] = "\n".join(f"{place:<{column}} # {note}" for place, note in zip(places, found, strict=True))
    return "\n".join(lines)


def _fits(doc: Doc, room: int) -> bool:
    """Whether `doc` on one line fits in `room` columns, ignoring what follows it."""
    pending = [doc]
    while pending:
        node = pending.pop()
        if isinstance(node, Text):
            room -= len(node.text)
        elif isinstance(node, Break):
            room -= len(node.flat)
        elif isinstance(node, Concat):
            pending.extend(reversed(node.parts))
        else:
            pending.append(node.child)  # type: ignore[attr-defined]
        if room < 0:
            return False
    return room >= 0
