"""Serializes values for our own processes with cloudpickle, functions and classes of a notebook or script included.

A function or class of an importable module is sent by name. Any other (of ``__main__``, or defined inside a function)
is sent by value, with the globals and cells that it uses. Both sides must run the same Python version.
"""

import io
import linecache
import marshal
import os
import pickle
import types
from functools import cache
from typing import Any


def dumps(value: Any) -> bytes:
    """`value` with the functions and classes in it, for `loads`.

    Raises:
      TypeError: something in it cannot be sent, such as a lock or a socket.
    """
    content = io.BytesIO()
    pickler = _pickler()(content, pickle.HIGHEST_PROTOCOL)
    try:
        pickler.dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"cannot be sent to the ranks: {error}. A function may use modules, functions, classes, arrays and plain "
            "data. Open files and devices inside the function."
        ) from error
    # The rank cannot read the source of a notebook's cell, which its tracebacks show.
    sources = {name: linecache.getlines(name) for name in sorted(pickler.files) if not os.path.exists(name)}
    return pickle.dumps((sources, content.getvalue()))


def loads(data: bytes) -> Any:
    """The value that `dumps` serialized. It may run any code: `data` must come from a process of this job."""
    sources, content = pickle.loads(data)
    for name, lines in sources.items():
        if lines:
            linecache.cache[name] = (sum(map(len, lines)), None, lines, name)
    return pickle.loads(content)


@cache
def _pickler() -> type:
    """Makes the class when it is first used, because cloudpickle takes time to load."""
    import cloudpickle

    class Pickler(cloudpickle.Pickler):
        """Keeps the file names in code, which cloudpickle drops, for tracebacks; and notes them."""

        def __init__(self, *args: Any):
            super().__init__(*args)
            self.files: set[str] = set()

        def reducer_override(self, obj: Any) -> Any:
            if isinstance(obj, types.CodeType):
                self.files.add(obj.co_filename)
                return marshal.loads, (marshal.dumps(obj),)
            return super().reducer_override(obj)

    return Pickler
