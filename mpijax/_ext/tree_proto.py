"""Treedefs as protocol buffers: the message ``PyTreeDefProto`` of JAX.

    message PyTreeDefProto { repeated Node nodes = 1; repeated string interned_strings = 2; }
    message Node           { uint32 arity = 1; Kind type = 2; Keys dict_keys = 3; }
    message Keys           { repeated uint32 str_id = 1; }

The nodes are in postorder. A key is the index of a string of `interned_strings`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

T = TypeVar("T")
# The root of a treedef: its kind, its number of children, and the keys of a dict.
Node = tuple[object, int, tuple[str, ...]]

# The values of ``Node.type``.
KINDS: dict[int, object] = {1: "leaf", 2: list, 3: type(None), 4: tuple, 5: dict}
NUMBERS = {kind: number for number, kind in KINDS.items()}

# Wire types.
VARINT, BYTES = 0, 2


def encode(nodes: Iterable[Node]) -> bytes:
    """The message for `nodes`: triples (kind, number of children, keys of a dict) in postorder."""
    strings: dict[str, int] = {}
    out = bytearray()
    for kind, arity, keys in nodes:
        for key in keys:
            if type(key) is not str:
                raise ValueError("Only string keys are supported in proto pytree serialization.")
            strings.setdefault(key, len(strings))
        body = (_number_field(1, arity) if arity else b"") + _number_field(2, NUMBERS[kind])
        if keys:
            body += _bytes_field(3, _bytes_field(1, b"".join([_varint(strings[key]) for key in keys])))
        out += _bytes_field(1, body)
    for string in strings:
        out += _bytes_field(2, string.encode())
    return bytes(out)


def decode(data: bytes) -> list[Node]:
    """The triples that `encode` took. Raises ValueError if `data` is no such message."""
    nodes: list[tuple[object, int, list[int]]] = []
    strings: list[str] = []
    for field, value in _fields(data):
        if field == 1:
            nodes.append(_decoded_node(_expected(bytes, value)))
        elif field == 2:
            strings.append(_expected(bytes, value).decode())
    for _, _, keys in nodes:
        if keys and max(keys) >= len(strings):
            raise ValueError(f"the key {max(keys)} is none of the {len(strings)} strings")
    return [(kind, arity, tuple([strings[key] for key in keys])) for kind, arity, keys in nodes]


def _decoded_node(data: bytes) -> tuple[object, int, list[int]]:
    arity, kind = 0, None
    keys: list[int] = []
    for field, value in _fields(data):
        if field == 1:
            arity = _expected(int, value)
        elif field == 2:
            kind = KINDS.get(_expected(int, value))
        elif field == 3:
            for _, ids in _fields(_expected(bytes, value)):
                # One number, or numbers one after the other: readers accept both.
                keys += [ids] if isinstance(ids, int) else _varints(ids)
    if kind is None:
        raise ValueError("a node has no known type")
    return kind, arity, keys


def _expected(cls: type[T], value: object) -> T:
    if not isinstance(value, cls):
        raise ValueError(f"expected {cls.__name__}, found {value!r}")
    return value


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def _number_field(field: int, value: int) -> bytes:
    return _varint(field << 3 | VARINT) + _varint(value)


def _bytes_field(field: int, value: bytes) -> bytes:
    return _varint(field << 3 | BYTES) + _varint(len(value)) + value


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """The number at this position, and the position after it."""
    value, shift = 0, 0
    while True:
        if at >= len(data) or shift > 63:
            raise ValueError("a number does not end")
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _varints(data: bytes) -> list[int]:
    out, at = [], 0
    while at < len(data):
        value, at = _read_varint(data, at)
        out.append(value)
    return out


def _fields(data: bytes) -> list[tuple[int, int | bytes]]:
    """The pairs (field, value): an int or bytes."""
    out: list[tuple[int, int | bytes]] = []
    at = 0
    while at < len(data):
        tag, at = _read_varint(data, at)
        number, at = _read_varint(data, at)
        if tag & 7 == VARINT:
            out.append((tag >> 3, number))
        elif tag & 7 != BYTES:
            raise ValueError(f"unknown wire type {tag & 7}")
        elif number > len(data) - at:
            raise ValueError("a field does not end")
        else:
            out.append((tag >> 3, data[at : at + number]))
            at += number
    return out
