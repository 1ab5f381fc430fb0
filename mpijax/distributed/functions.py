"""Serializes functions for our own processes, including lambdas, closures, and functions of a notebook or script.

A function defined in an importable module is sent by name. Any other function (in ``__main__``, inside another
function) is sent as its compiled code with the globals and cells that it reads, which are serialized alike. Both sides
must run the same Python version.
"""

import builtins
import importlib
import io
import linecache
import marshal
import pickle
import sys
import types
from typing import Any


def dumps(value: Any) -> bytes:
    """`value`, pickled with the functions in it.

    Raises:
      TypeError: something in it cannot be sent, such as a class defined in ``__main__`` or an open file.
    """
    buffer = io.BytesIO()
    try:
        _Pickler(buffer, pickle.HIGHEST_PROTOCOL).dump(value)
    except (pickle.PicklingError, AttributeError, TypeError) as error:
        raise TypeError(
            f"cannot be sent to the ranks: {error}. A function may use modules, functions, arrays and plain data. Put "
            "classes into a module that the ranks can import. Open files and devices inside the function."
        ) from error
    return buffer.getvalue()


class _Pickler(pickle.Pickler):
    def reducer_override(self, obj: Any) -> Any:
        if isinstance(obj, types.ModuleType):
            return importlib.import_module, (obj.__name__,)
        if isinstance(obj, types.FunctionType) and not _importable(obj):
            return _reduce_function(obj)
        if isinstance(obj, type) and obj.__module__ == "__main__":
            raise pickle.PicklingError(f"the class {obj.__qualname__} is defined in __main__")
        return NotImplemented


def _importable(function: types.FunctionType) -> bool:
    found: Any = sys.modules.get(function.__module__) if function.__module__ != "__main__" else None
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _reduce_function(function: types.FunctionType) -> Any:
    code = function.__code__
    closure = zip(code.co_freevars, function.__closure__ or ())
    cells = {name: cell.cell_contents for name, cell in closure if _full(cell)}
    used = {name: function.__globals__[name] for name in _names(code) if name in function.__globals__}
    source = linecache.getlines(code.co_filename)  # of a notebook cell, for example, which the rank cannot read
    state = (used, cells, function.__defaults__, function.__kwdefaults__)
    return _make, (marshal.dumps(code), function.__qualname__, source), state, None, None, _fill


def _full(cell: types.CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _names(code: types.CodeType) -> set[str]:
    """The names that `code`, and the functions inside it, may look up globally."""
    names = set(code.co_names)
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            names |= _names(constant)
    return names


def _make(code_bytes: bytes, qualname: str, source: list[str]) -> types.FunctionType:
    """Makes a function with empty cells and globals first, so that functions may refer to themselves and each other."""
    code = marshal.loads(code_bytes)
    if source:
        linecache.cache[code.co_filename] = (sum(map(len, source)), None, source, code.co_filename)
    own = {"__builtins__": builtins, "__name__": "__main__"}
    cells = tuple(types.CellType() for _ in code.co_freevars)
    function = types.FunctionType(code, own, code.co_name, None, cells)
    function.__qualname__ = qualname
    return function


def _fill(function: types.FunctionType, state: Any) -> None:
    used, cells, function.__defaults__, function.__kwdefaults__ = state
    function.__globals__.update(used)
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or ()):
        if name in cells:
            cell.cell_contents = cells[name]
