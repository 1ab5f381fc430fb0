"""Write the type stubs of the packages whose names are loaded when they are first used: their tables as imports.

    python tools/make_stubs.py            write mpijax/__init__.pyi and its like
    python tools/make_stubs.py --check    exit with 1 where one is not up to date
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
import types
import typing
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parent.parent
LAZY = ("mpijax", "mpijax.lax", "mpijax.lax.linalg", "mpijax.nn", "mpijax.numpy")
HEADER = '"""Names of {module}. Written by tools/make_stubs.py from its table."""\n\nfrom typing import Any\n\n'


def homes(package: str) -> Iterable[tuple[str, list[str]]]:
    """(module, names) of what a package loads from where, sorted."""
    module = importlib.import_module(package)
    found: dict[str, list[str]] = {}
    if package == "mpijax":
        for name, home in module._WHERE.items():
            found.setdefault(home, []).append(name)
    else:
        base = package if package == "mpijax.numpy" else "mpijax"
        for name, home in module._HOME.items():
            found.setdefault(f"{base}.{home}", []).append(name)
    if package == "mpijax.numpy":
        found["numpy"] = sorted(module._NUMPYS)
    return sorted((home, sorted(names)) for home, names in found.items())


def submodules(package: str) -> list[str]:
    module = importlib.import_module(package)
    return sorted(module._MODULES if package == "mpijax" else getattr(module, "_SUBMODULES", ()))


def stub(package: str) -> str:
    """The text of a package's stub."""
    lines = [f"from {package} import {name} as {name}" for name in submodules(package)]
    for home, names in homes(package):
        for name in names:
            lines.append(declaration(home, name))
    if package == "mpijax.numpy":
        lines += ["from mpijax.core.array_api import Array", "ndarray = Array", "bool: Any"]
    if package == "mpijax":
        lines += [f"from mpijax.version import {n} as {n}" for n in ("__version__", "__version_info__")]
    imports = [line for line in lines if line.startswith("from ")]
    others = [line for line in lines if not line.startswith("from ")]
    return HEADER.format(module=package) + "\n".join(imports) + "\n\n" + "\n".join(others) + "\n"


def declaration(home: str, name: str) -> str:
    """How the stub declares a name: imported where it has types, with `Any` where it has none."""
    if home == "numpy":
        return f"from {home} import {name} as {name}"
    value = getattr(importlib.import_module(home), name)
    if isinstance(value, type):
        defined = getattr(value, "__module__", home)
        if defined in LAZY:
            return f"{name}: Any"
        owner = defined if getattr(sys.modules.get(defined), name, None) is value else home
        return f"from {owner} import {name} as {name}"
    if isinstance(value, types.FunctionType) and value.__module__ == home and _typed(value):
        return f"from {home} import {name} as {name}"
    if typing.get_origin(value) is not None or not callable(value) or not hasattr(value, "__name__"):
        return f"{name}: Any"
    try:
        return f"def {name}({_parameters(inspect.signature(value))}) -> Any: ..."
    except (TypeError, ValueError):
        return f"{name}: Any"


def _typed(function: types.FunctionType) -> bool:
    signature = inspect.signature(function)
    parts = [p.annotation for p in signature.parameters.values()] + [signature.return_annotation]
    return inspect.Parameter.empty not in parts


def _parameters(signature: inspect.Signature) -> str:
    plain = [
        p.replace(annotation="Any", default=... if p.default is not p.empty else p.empty)
        for p in signature.parameters.values()
    ]
    text = str(inspect.Signature(plain))[1:-1]
    return text.replace("'Any'", "Any").replace("Ellipsis", "...")


def path(package: str) -> Path:
    found = ROOT.joinpath(*package.split("."))
    return found / "__init__.pyi" if found.is_dir() else found.with_suffix(".pyi")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    stale = [p for p in LAZY if not path(p).exists() or path(p).read_text() != stub(p)]
    if parser.parse_args().check:
        sys.exit(f"stubs of {', '.join(stale)} are not up to date: run {sys.argv[0]}" if stale else 0)
    for package in stale:
        path(package).write_text(stub(package))
