"""Write docs/coverage.md, the list of the names of JAX that mpijax has. Needs JAX; `--check` only compares.

    python docs/make_coverage.py
"""

from __future__ import annotations

import argparse
import importlib
import logging
import pkgutil
import sys
import types
import warnings
from pathlib import Path

# JAX's roofline logs with absl, which JAX does not require.
sys.modules.setdefault("absl", types.SimpleNamespace(logging=logging))  # type: ignore[arg-type]
DOCUMENT = Path(__file__).with_name("coverage.md")
PACKAGES = """
    jax numpy numpy.fft numpy.linalg lax lax.linalg nn nn.initializers random scipy tree tree_util ad_checkpoint
    api_util core custom_batching custom_derivatives debug distributed dlpack dtypes errors
    example_libraries example_libraries.optimizers example_libraries.stax experimental export extend extend.core
    extend.linear_util extend.source_info_util ffi flatten_util image interpreters interpreters.ad
    interpreters.batching interpreters.mlir interpreters.partial_eval interpreters.xla monitoring ops profiler sharding
    stages test_util typing""".split()
# Packages whose modules are all compared.
WHOLE = ("scipy", "experimental")
# Names of JAX's own helpers, which some of its modules do not hide.
_HELPERS = frozenset(
    """jax._src.util jax._src.tree_util jax._src.api_util jax._src.linear_util jax._src.dtypes jax._src.basearray
    jax._src.traceback_util jax._src.numpy.util jax._src.partition_spec jax._src.typing jax._src.api jax._src.core
    jax._src.ad_util jax._src.lax.slicing jax._src.custom_derivatives""".split()
)
_HELPER_NAMES = frozenset("map zip safe_map safe_zip unzip2".split())
_OPEN = ("jax.experimental.", "jax.example_libraries.")
HEADER = """# Coverage of JAX's names

Look up which public names of jax {version} mpijax has, and why others are missing. The error for a missing name has the
reason, too. `python docs/make_coverage.py` writes this page; a test checks that it is up to date.

| module | names | in mpijax | missing |
|---|---|---|---|
"""


def modules() -> list[str]:
    """The modules to compare, by JAX's names."""
    found = ["jax" if p == "jax" else f"jax.{p}" for p in PACKAGES]
    for part in WHOLE:
        found += _within(f"jax.{part}", deep=part == "scipy")
    return found


def _within(package: str, deep: bool) -> list[str]:
    found = []
    for info in pkgutil.iter_modules(importlib.import_module(package).__path__):
        name = f"{package}.{info.name}"
        if info.name.startswith("_") or _left_out_whole(name):
            continue
        found.append(name)
        if deep and info.ispkg:
            found += _within(name, deep)
    return found


def _missing():
    return importlib.import_module("mpijax.missing")


def _left_out_whole(module: str) -> bool:
    return f"{module.removeprefix('jax.')}." in _missing().left_out()


def public_names(module: str) -> list[str]:
    """The public names of a module of JAX, without names that it imports for its own use."""
    owner = importlib.import_module(module)
    listed = getattr(owner, "__all__", None)
    names = [n for n in dir(owner) if not n.startswith("_")] if listed is None or module == "jax" else listed
    return sorted(n for n in set(names) if _belongs(module, n, getattr(owner, n), listed is not None))


def _belongs(module: str, name: str, value: object, listed: bool) -> bool:
    if isinstance(value, types.ModuleType):
        return value.__name__ == f"{module}.{name}"
    if listed:
        return True
    home = getattr(value, "__module__", None)
    home = home if isinstance(home, str) else type(value).__module__
    if home.split(".")[0] in sys.stdlib_module_names and home not in ("builtins", "types", "functools", "typing"):
        return False
    if type(value).__module__ in ("__future__", "typing") or home in ("typing", "functools"):
        return False
    helper = name in _HELPER_NAMES or getattr(value, "__module__", None) in _HELPERS
    return not (module.startswith(_OPEN) and helper)


NOTHING = object()


def find(module: str, name: str) -> object:
    """The value of the name in mpijax, or NOTHING."""
    try:
        return getattr(importlib.import_module(f"mpi{module}"), name)
    except (AttributeError, ImportError):
        try:
            return importlib.import_module(f"mpi{module}.{name}")
        except ImportError:
            return NOTHING


def reason_for(module: str, name: str) -> str | None:
    """Why mpijax does not have the name. A function that only raises an error gives the reason itself."""
    return getattr(find(module, name), "instead", None) or _missing().reason_for(module, name)


def has(module: str, name: str) -> bool:
    """Whether mpijax has the name and it works."""
    value = find(module, name)
    return value is not NOTHING and not hasattr(value, "instead")


def compare() -> tuple[dict[str, tuple[int, list[str]]], dict[str, list[str]]]:
    """(for each module the number of names and those left out; names by reason). KeyError: a name without a reason."""
    counts: dict[str, tuple[int, list[str]]] = {}
    reasons: dict[str, list[str]] = {}
    unexplained = []
    for module in modules():
        names = public_names(module)
        absent = [n for n in names if not has(module, n)]
        counts[module] = len(names), absent
        for name in absent:
            reason = reason_for(module, name)
            if reason is None:
                unexplained.append(f"{module}.{name}")
            else:
                reasons.setdefault(reason, []).append(f"{module}.{name}".removeprefix("jax."))
    for name, reason in _missing().left_out().items():
        if name.endswith(".") and name[:-1] not in reasons.get(reason, []):
            reasons.setdefault(reason, []).append(name[:-1])
    if unexplained:
        raise KeyError(f"mpijax has not these names, and mpijax/missing.py does not say why: {' '.join(unexplained)}")
    return counts, reasons


def document() -> str:
    """The text of docs/coverage.md."""
    import jax

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        counts, reasons = compare()
    lines = [HEADER.format(version=jax.__version__).rstrip("\n")]
    for module, (count, absent) in counts.items():
        share = f"{100 * (count - len(absent)) / count:.0f} %" if count else "-"
        lines.append(f"| `{module}` | {count} | {share} | {len(absent) or ''} |")
    lines += ["", "## Missing names, and why"]
    for reason, names in sorted(reasons.items(), key=lambda item: item[1][0]):
        lines += ["", f"{reason[0].upper()}{reason[1:]}:", "", *_wrapped([f"`{n}`" for n in sorted(names)])]
    return "\n".join(lines) + "\n"


def _wrapped(words: list[str], width: int = 120) -> list[str]:
    lines = [""]
    for word in words:
        if len(lines[-1]) + len(word) + 1 > width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="exit with 1 if the document is not up to date")
    wanted = document()
    if parser.parse_args().check:
        sys.exit(0 if DOCUMENT.read_text() == wanted else f"{DOCUMENT} is not up to date: run {sys.argv[0]}")
    DOCUMENT.write_text(wanted)
