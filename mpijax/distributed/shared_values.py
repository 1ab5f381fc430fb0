"""Exchanges values between a notebook and its ranks as data: arrays as ``.npy`` without pickle, the rest as JSON.

Reading creates only numbers, strings, containers and arrays, and calls nothing else.
"""

from __future__ import annotations

import base64
import io
import json
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

_PLAIN = (type(None), bool, int, float, str)
_CONTAINERS: dict[type, str] = {list: "list", tuple: "tuple", set: "set"}


def send(connection: Connection, message: dict[str, Any], arrays: list[bytes]) -> None:
    """One message: a JSON object, then its arrays."""
    connection.send_bytes(json.dumps([message, len(arrays)]).encode())
    for data in arrays:
        connection.send_bytes(data)


def receive(connection: Connection) -> tuple[dict[str, Any], list[bytes]]:
    """A message from `send`. Raises EOFError or OSError if the other side has ended."""
    message, count = json.loads(connection.recv_bytes())
    return message, [connection.recv_bytes() for _ in range(count)]


def pack(name: str, value: Any, arrays: list[bytes]) -> Any:
    """`value` in a form for JSON; its arrays are appended to `arrays`.

    Raises:
      TypeError: the variable `name` contains anything but numbers, strings, bytes, arrays, and lists, tuples, sets and
        dicts of them.
    """
    from mpijax import Array

    if type(value) in _PLAIN:
        return value
    if type(value) is complex:
        return {"complex": [value.real, value.imag]}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    if type(value) in _CONTAINERS:
        return {_CONTAINERS[type(value)]: [pack(name, item, arrays) for item in value]}
    if type(value) is dict:
        return {"dict": [[pack(name, k, arrays), pack(name, v, arrays)] for k, v in value.items()]}
    if isinstance(value, (np.generic, Array)) or type(value) is np.ndarray:
        return _pack_array(name, value, arrays)
    raise TypeError(
        f"{name} holds a {type(value).__name__}, which cannot be copied between a notebook and its ranks. Only "
        "numbers, strings, arrays, and lists, tuples, sets and dicts of them can."
    )


def _pack_array(name: str, value: Any, arrays: list[bytes]) -> Any:
    from mpijax import Array

    kind = "jax" if isinstance(value, Array) else "scalar" if isinstance(value, np.generic) else "numpy"
    if kind == "jax" and not (value.is_fully_addressable or value.is_fully_replicated):
        raise TypeError(
            f"{name} holds an array of shape {value.shape} that is sharded over ranks. Gather it first: "
            "mpijax.experimental.multihost_utils.process_allgather(array, tiled=True)."
        )
    data = np.asarray(value)
    if data.dtype.hasobject:
        raise TypeError(
            f"{name} holds a NumPy array of Python objects, which cannot be copied between a notebook and its ranks. "
            "Convert it to numbers or fixed-length strings."
        )
    # .npy supports only NumPy's own dtypes; bfloat16 and others are sent as bytes with their name.
    narrow = data.dtype.name if data.dtype.isbuiltin == 2 else None
    buffer = io.BytesIO()
    np.save(buffer, np.asarray(data).view(f"u{data.dtype.itemsize}") if narrow else data, allow_pickle=False)
    arrays.append(buffer.getvalue())
    return {"array": len(arrays) - 1, "kind": kind, "dtype": narrow}


def unpack(packed: Any, arrays: list[bytes], *, keep_jax: bool) -> Any:
    """The value given to `pack`. keep_jax: whether mpijax arrays become mpijax arrays again instead of NumPy's."""
    if not isinstance(packed, dict):
        return packed
    if "array" in packed:
        return _unpack_array(packed, arrays, keep_jax)
    [(kind, content)] = packed.items()
    if kind == "complex":
        return complex(*content)
    if kind == "bytes":
        return base64.b64decode(content)
    if kind == "dict":
        pairs = ([unpack(item, arrays, keep_jax=keep_jax) for item in pair] for pair in content)
        return dict(pairs)
    make = {"list": list, "tuple": tuple, "set": set}[kind]
    return make(unpack(item, arrays, keep_jax=keep_jax) for item in content)


def _unpack_array(packed: dict[str, Any], arrays: list[bytes], keep_jax: bool) -> Any:
    from mpijax import numpy as jnp

    data = np.load(io.BytesIO(arrays[packed["array"]]), allow_pickle=False)
    if packed["dtype"]:
        data = data.view(jnp.dtype(packed["dtype"]))
    if packed["kind"] == "scalar":
        return data[()]
    return jnp.asarray(data) if packed["kind"] == "jax" and keep_jax else data
