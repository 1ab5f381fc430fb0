"""Of a value of a test, what it is by content: of a function its text and all that it refers to, of an array its bits.

A value of any other kind has no fingerprint, and what depends on it is computed each time.
"""

from __future__ import annotations

import ast
import dis
import functools
import sys
from base64 import b64encode
from collections.abc import Iterator
from hashlib import blake2b
from types import CodeType, FunctionType, ModuleType
from typing import Any

import numpy as np

# What has a name in these is the same where the version of JAX is: JAX's version is in each key.
LIBRARIES = set("_operator builtins collections functools itertools jax jaxlib math ml_dtypes numpy operator".split())
OF_EACH_CLASS = set("__dict__ __doc__ __firstlineno__ __module__ __qualname__ __static_attributes__ __weakref__".split())
NUMBERS = (bool, int, float, complex, str, bytes, type(None), type(Ellipsis), slice, range)


class NoFingerprintError(Exception):
    """A value that is known by its identity alone."""


def digest(data: bytes) -> str:
    """Eight characters."""
    return b64encode(blake2b(data, digest_size=6).digest()).decode()


def fingerprint(*values: Any) -> str:
    """Raises NoFingerprintError."""
    return digest("\n".join(words(values, {})).encode())


def words(x: Any, seen: dict[int, int]) -> Iterator[str]:
    """A text that no other value has. seen: the numbers of functions and classes that are described already."""
    if type(x) in NUMBERS:
        yield f"{type(x).__name__} {x!r}"
    elif isinstance(x, (np.ndarray, np.generic)) and not x.dtype.hasobject:
        yield f"{type(x).__name__} {x.dtype.name} {x.shape} {x.tobytes().hex()}"
    elif isinstance(x, np.dtype):
        yield f"dtype {x.name}"
    elif type(x) in (tuple, list):
        yield f"{type(x).__name__} {len(x)}"
        for part in x:
            yield from words(part, seen)
    elif type(x) is dict:
        yield f"dict {len(x)}"
        for key, value in x.items():
            yield from words(key, seen)
            yield from words(value, seen)
    elif type(x) is functools.partial:
        yield "partial"
        yield from words((x.func, x.args, x.keywords), seen)
    elif isinstance(x, ModuleType) and x.__name__.split(".")[0] in LIBRARIES:
        yield f"module {x.__name__}"
    elif (name := name_in_library(x)) is not None:
        yield name
    elif type(x).__module__ == "oracle" and type(x).__name__ == "Library":
        yield f"library {x.name}"
    elif str(getattr(x, "__module__", None)).split(".")[0] == "mpijax":
        raise NoFingerprintError(f"{x}, which JAX's answer should not depend on")
    elif isinstance(x, FunctionType):
        yield from words_of_function(x, seen)
    elif type(x) is type:
        yield from words_of_class(x, seen)
    elif type(type(x)) is type and type(getattr(x, "__dict__", None)) is dict:
        yield from words_of_class(type(x), seen)
        yield from words(x.__dict__, seen)
    else:
        raise NoFingerprintError(type(x))


def name_in_library(x: Any) -> str | None:
    module, name = getattr(x, "__module__", None), getattr(x, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(name, str) or module.split(".")[0] not in LIBRARIES:
        return None
    found = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return f"{module} {name}" if found is x else None


def words_of_function(f: FunctionType, seen: dict[int, int]) -> Iterator[str]:
    if id(f) in seen:
        yield f"function {seen[id(f)]}"
        return
    seen[id(f)] = len(seen)
    text, names = described(f.__code__)
    yield f"def {text}"
    yield from words((f.__defaults__, f.__kwdefaults__), seen)
    for name, cell in zip(f.__code__.co_freevars, f.__closure__ or (), strict=True):
        yield name
        yield from words(contents(cell), seen)
    for name in names:
        if name in f.__globals__:
            yield name
            yield from words(f.__globals__[name], seen)


def words_of_class(cls: type, seen: dict[int, int]) -> Iterator[str]:
    """Of a class of a test, with no more bases than `object`: what its instances are is in their `__dict__`."""
    if id(cls) in seen:
        yield f"class {seen[id(cls)]}"
        return
    if cls.__bases__ != (object,) or "__slots__" in cls.__dict__ or name_in_library(cls) is not None:
        raise NoFingerprintError(cls)
    seen[id(cls)] = len(seen)
    yield f"class {cls.__qualname__}"
    for name, value in cls.__dict__.items():
        if name not in OF_EACH_CLASS:
            yield name
            yield from words(value, seen)


def contents(cell: Any) -> Any:
    try:
        return cell.cell_contents
    except ValueError:
        raise NoFingerprintError("a variable without a value") from None


@functools.cache
def described(code: CodeType) -> tuple[str, tuple[str, ...]]:
    """A function's text, and the names that it or functions in it look for in its module."""
    return text_of(code), tuple(dict.fromkeys(names_in(code)))


def names_in(code: CodeType) -> Iterator[str]:
    yield from (i.argval for i in dis.get_instructions(code) if i.opname in {"LOAD_GLOBAL", "LOAD_NAME"})
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from names_in(constant)


def text_of(code: CodeType) -> str:
    source, functions = parsed(code.co_filename)
    found = functions.get((code.co_name, code.co_firstlineno), [])
    if code.co_name == "<lambda>":
        places = [p for p in code.co_positions() if None not in p and (p[0], p[2]) != (p[1], p[3])]
        extent = min((p[0], p[2]) for p in places), max((p[1], p[3]) for p in places)
        found = [node for node in found if extent_of(node.body) == extent]
    if len(found) != 1 or any(map(looks_elsewhere, ast.walk(found[0]))):
        raise NoFingerprintError(f"the text of {code}")
    return ast.get_source_segment(source, found[0])


def looks_elsewhere(node: ast.AST) -> bool:
    """Whether a node of a function gets values by names that are not in the function's text."""
    if isinstance(node, (ast.Import, ast.ImportFrom, ast.Global)):
        return True
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
        return node.func.id in {"exec", "globals", "vars", "__import__"} or node.func.id == "eval" and len(node.args) < 2
    return False


def extent_of(node: Any) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno, node.end_col_offset)


@functools.cache
def parsed(filename: str) -> tuple[str, dict[tuple[str, int], list]]:
    """A file, and its functions by their names and first lines."""
    try:
        with open(filename, encoding="utf-8") as file:
            source = file.read()
    except OSError:
        raise NoFingerprintError(filename) from None
    functions: dict[tuple[str, int], list] = {}
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Lambda):
            functions.setdefault(("<lambda>", node.lineno), []).append(node)
        elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            functions.setdefault((node.name, first), []).append(node)
    return source, functions
