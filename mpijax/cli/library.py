"""``mpijax doctor --library NAME``: lists what a library's sources use of jax, and what of it is missing."""

from __future__ import annotations

import ast
import contextlib
import importlib
import importlib.util
import sys
import types
import warnings
from collections.abc import Iterator
from pathlib import Path

from mpijax import missing
from mpijax.aliasing import names, placeholders
from mpijax.aliasing.finders import ROOTS, counterpart

# Names with the file and line of their first use.
Uses = dict[str, str]


def used(source: str) -> Iterator[tuple[str, int]]:
    """(full name, line) of each use of jax in a module: imports, and attributes of imported names.

    >>> from mpijax.cli import library
    >>> sorted({name for name, line in library.used("from jax import lax\\nlax.linalg.qr(1)")})
    ['jax.lax', 'jax.lax.linalg.qr']
    """
    tree = ast.parse(source)
    local: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                root = alias.name.partition(".")[0]
                if root in ROOTS:
                    local[alias.asname or root] = alias.name if alias.asname else root
                    yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level and (node.module or "").partition(".")[0] in ROOTS:
            for alias in node.names:
                if alias.name != "*":
                    local[alias.asname or alias.name] = f"{node.module}.{alias.name}"
                    yield local[alias.asname or alias.name], node.lineno
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            chain = _chain(node)
            if chain[0] in local:
                yield ".".join([local[chain[0]], *chain[1:]]), node.lineno


def _chain(node: ast.expr) -> list[str]:
    """The names of `a.b.c`; the first is '' if it does not start with a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    parts.append(node.id if isinstance(node, ast.Name) else "")
    return parts[::-1]


def lacking(name: str) -> tuple[str, str] | None:
    """(the shortest prefix of a name that mpijax lacks, the reason); None if the name exists.

    >>> from mpijax.cli import library
    >>> library.lacking("jax.lax.sin"), library.lacking("jax.lax.nothing.at_all")
    (None, ('jax.lax.nothing', 'not a public name of JAX, and unknown to mpijax'))
    """
    parts = name.split(".")
    found: object = None
    for i in range(1, len(parts) + 1):
        part = ".".join(parts[:i])
        real = counterpart(part) or part
        reason = placeholders.reason(real)
        if reason is not None:
            return part, f"can be imported but not used: {reason}"
        if i > 1 and real.rpartition(".")[0] in names.modules() and parts[i - 1] in _homes(real.rpartition(".")[0]):
            return None
        if real in names.modules() and not _has_file(real):
            found = types.ModuleType(part)
            continue
        if i > 1 and not isinstance(found, types.ModuleType):
            return None  # an attribute of a class or a function
        try:
            found = getattr(found, parts[i - 1]) if i > 1 else importlib.import_module(real)
        except AttributeError:
            try:
                found = importlib.import_module(real)
            except ImportError:
                why = missing.reason_for((counterpart(".".join(parts[: i - 1])) or "jax"), parts[i - 1])
                return part, why or "not a public name of JAX, and unknown to mpijax"
    return None


def _has_file(module: str) -> bool:
    """Whether a private module of JAX is one of mpijax's, with more names than the libraries' table lists."""
    spec = importlib.util.find_spec(module)
    return spec is not None and spec.has_location


def _homes(module: str) -> dict[str, str]:
    return {"__version__": "", **names.modules()[module]}


def of_library(name: str) -> Uses:
    """The uses of jax in an installed library, without its tests. Raises ModuleNotFoundError."""
    spec = importlib.util.find_spec(name)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"library {name!r} is not installed")
    root = Path(spec.origin)
    files = sorted(root.parent.rglob("*.py")) if spec.submodule_search_locations else [root]
    uses: Uses = {}
    for file in files:
        inside = file.relative_to(root.parent)
        if any(part in ("test", "tests") for part in inside.parts) or file.stem.endswith("_test"):
            continue
        with contextlib.suppress(SyntaxError, UnicodeDecodeError):
            for full, line in used(file.read_text()):
                uses.setdefault(full, f"{inside}:{line}")
    return uses


def report(name: str) -> int:
    """Print the missing names of jax that a library uses; 1 if there are any, 2 if the library does not exist."""
    try:
        uses = of_library(name)
    except ImportError as error:
        print(f"mpijax doctor: {error}", file=sys.stderr)
        return 2
    gaps: dict[str, tuple[str, str]] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for full, where in sorted(uses.items()):
            lack = lacking(full)
            if lack is not None:
                gaps.setdefault(lack[0], (lack[1], where))
    print(f"{name} uses {len(uses)} names of jax; mpijax does not have {len(gaps)} of them.")
    for part, (why, where) in gaps.items():
        print(f"  {part}\n      {name}/{where}: {why}")
    return int(bool(gaps))
