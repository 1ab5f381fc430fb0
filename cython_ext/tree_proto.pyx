# cython: language_level=3, boundscheck=True, wraparound=False
"""Treedefs as protocol buffers: the message ``PyTreeDefProto`` of JAX.

    message PyTreeDefProto { repeated Node nodes = 1; repeated string interned_strings = 2; }
    message Node           { uint32 arity = 1; Kind type = 2; Keys dict_keys = 3; }
    message Keys           { repeated uint32 str_id = 1; }

The nodes are in postorder. A key is the index of a string of `interned_strings`.
"""

# The values of ``Node.type``.
KINDS = {1: "leaf", 2: list, 3: type(None), 4: tuple, 5: dict}
NUMBERS = {kind: number for number, kind in KINDS.items()}

cdef enum WireType:
    VARINT = 0
    BYTES = 2


def encode(nodes):
    """The message for `nodes`: triples (kind, number of children, keys of a dict) in postorder."""
    strings = {}
    out = bytearray()
    for kind, arity, keys in nodes:
        for key in keys:
            if type(key) is not str:
                raise ValueError("Only string keys are supported in proto pytree serialization.")
            strings.setdefault(key, len(strings))
        body = (number_field(1, arity) if arity else b"") + number_field(2, NUMBERS[kind])
        if keys:
            body += bytes_field(3, bytes_field(1, b"".join([varint(strings[key]) for key in keys])))
        out += bytes_field(1, body)
    for string in strings:
        out += bytes_field(2, string.encode())
    return bytes(out)


def decode(bytes data not None):
    """The triples that `encode` took. Raises ValueError if `data` is no such message."""
    nodes, strings = [], []
    for field, value in fields(data):
        if field == 1:
            nodes.append(decode_node(expect(bytes, value)))
        elif field == 2:
            strings.append(expect(bytes, value).decode())
    for _, _, keys in nodes:
        if keys and max(keys) >= len(strings):
            raise ValueError(f"the key {max(keys)} is none of the {len(strings)} strings")
    return [(kind, arity, tuple([strings[key] for key in keys])) for kind, arity, keys in nodes]


cdef tuple decode_node(bytes data):
    arity, kind, keys = 0, None, []
    for field, value in fields(data):
        if field == 1:
            arity = expect(int, value)
        elif field == 2:
            kind = KINDS.get(value)
        elif field == 3:
            for _, ids in fields(expect(bytes, value)):
                # One number, or numbers one after the other: readers accept both.
                keys += [ids] if type(ids) is int else varints(ids)
    if kind is None:
        raise ValueError("a node has no known type")
    return kind, arity, keys


cdef object expect(cls, value):
    if type(value) is not cls:
        raise ValueError(f"expected {cls.__name__}, found {value!r}")
    return value


cdef bytes varint(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


cdef bytes number_field(int field, value):
    return varint(field << 3 | VARINT) + varint(value)


cdef bytes bytes_field(int field, bytes value):
    return varint(field << 3 | BYTES) + varint(len(value)) + value


cdef tuple read_varint(bytes data, Py_ssize_t at):
    """(number, position after it)"""
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


cdef list varints(bytes data):
    out, at = [], 0
    while at < len(data):
        value, at = read_varint(data, at)
        out.append(value)
    return out


cdef list fields(bytes data):
    """The pairs (field, value): an int or bytes."""
    out, at = [], 0
    while at < len(data):
        tag, at = read_varint(data, at)
        value, at = read_varint(data, at)
        if tag & 7 == BYTES:
            if value > len(data) - at:
                raise ValueError("a field does not end")
            value, at = data[at : at + value], at + value
        elif tag & 7 != VARINT:
            raise ValueError(f"unknown wire type {tag & 7}")
        out.append((tag >> 3, value))
    return out
