"""The pages of the API reference: each public module with its names, their signatures and their docstrings.

The names are those whose examples the tests run (tests/docstrings.py), and in addition constants, exceptions and
primitives.
"""

import importlib
import inspect
import sys
import types
from pathlib import Path

import rst

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests"))
import docstrings

# Heading: the modules below it, by the beginnings of their names. A module is below the first heading that fits.
GROUPS = {
    "Arrays and functions": "mpijax.Array mpijax.numpy mpijax.lax mpijax.nn mpijax.random mpijax.scipy mpijax.image",
    "Ranks": "mpijax.mpi mpijax.sharding mpijax.distributed mpijax.checkpoint mpijax.federated",
    "Debugging and profiling": "mpijax.debug mpijax.profiler mpijax.monitoring mpijax.errors mpijax.test_util",
    "Trees and types": "mpijax.tree mpijax.flatten_util mpijax.dtypes mpijax.dlpack mpijax.typing mpijax.api_util",
    "Experimental": "mpijax.experimental mpijax.example_libraries",
    "Extending": "mpijax.extend mpijax.ffi mpijax.core mpijax.custom_ mpijax.interpreters mpijax.ops mpijax.export",
    "Programs": "mpijax",
}
# Classes whose methods have a page.
CLASSES = {
    "mpijax.Array": "The methods and properties of arrays.",
    "mpijax.Array.at": "The methods of ``x.at[index]``, which return changed copies of an array.",
    "mpijax.numpy.ufunc": "The methods of functions such as :py:obj:`mpijax.numpy.add`.",
}


def pages() -> dict[str, str]:
    """The text of each page by its name."""
    owned = docstrings.owned()
    known = {f"{module}.{name}" for module in docstrings.MODULES for name in names_of(module)}
    homes = {id(value): f"{module}.{name}" for module, names in owned.items() for name, value in names.items()}
    found = {f"api/{module}.rst": module_page(module, known, homes) for module in docstrings.MODULES}
    return found | {"api/index.md": index()}


def names_of(module: str) -> dict[str, object]:
    """Everything public in a module, or the public methods of a class."""
    names = dict(docstrings.public(module))
    if module in CLASSES:
        return names
    owner = importlib.import_module(module)
    listed = getattr(owner, "__all__", None)
    for name in listed or ():
        value = getattr(owner, name)
        if not isinstance(value, types.ModuleType) and not hasattr(value, "instead"):
            names.setdefault(name, value)
    return {name: names[name] for name in sorted(names, key=lambda n: (n.lower(), n))}


def index() -> str:
    """The page with the groups."""
    left, parts = list(docstrings.MODULES), []
    for heading, beginnings in GROUPS.items():
        here = [m for m in left if any(_below(m, b) for b in beginnings.split())]
        left = [m for m in left if m not in here]
        here.sort(key=lambda m: (m.lower() != "mpijax", m.lower()))
        lines = "\n".join(f"{m} <{m}>" for m in here)
        parts.append(f"## {heading}\n\n```{{toctree}}\n:maxdepth: 1\n\n{lines}\n```\n")
    assert not left, f"no group for {left}"
    parts.insert(0, parts.pop())  # the transformations first
    return _INDEX + "\n".join(parts)


_INDEX = """# API reference

Names, signatures and behaviour are those of JAX 0.10.2: `mpijax.numpy` is `jax.numpy`, and so on.
[Coverage](../coverage.md) lists the names that are left out. `mpijax.mpi`, `mpijax.checkpoint` and `mpijax.federated`
exist only here.

The examples start with these imports, which they do not show:

```python
import mpijax, numpy as np
from mpijax import lax, numpy as jnp
```

Each function shows its signature, what it computes, its arguments, its errors and an example that the tests run. The
link *[source]* leads to its code. Names that a table in the code makes do not have this link. The search field finds
names and words of the descriptions.

"""


def _below(module: str, beginning: str) -> bool:
    return module == beginning or module.startswith(beginning if beginning.endswith("_") else f"{beginning}.")


# ---------------------------------------------------------------------------------------------------- a module


def module_page(module: str, known: set[str], homes: dict[int, str]) -> str:
    names = names_of(module)
    lines = [f"{module}\n{'=' * len(module)}\n"]
    if module in CLASSES:
        kind = "method"
        package = "mpijax.numpy" if module.startswith("mpijax.numpy.") else "mpijax"
        lines.append(f".. py:currentmodule:: {package}\n\n{CLASSES[module]}\n")
        prefix = module.removeprefix(f"{package}.") + "."
    else:
        kind, prefix = "function", ""
        lines.append(f".. py:{'currentmodule' if module in known else 'module'}:: {module}\n")
        about = inspect.getdoc(importlib.import_module(module)) or ""
        lines.append(rst.of_docstring(_first_paragraph(about), module, known))
    lines.append(_summary(module, names, known))
    for name, value in names.items():
        home = homes.get(id(value), "")
        same = home if home and home != f"{module}.{name}" else ""
        lines += _entry(kind, f"{prefix}{name}", value, module, known, same)
    return "\n".join(lines)


def _first_paragraph(text: str) -> str:
    return text.split("\n\n")[0]


def _summary(module: str, names: dict[str, object], known: set[str]) -> str:
    """A table: each name and the first sentence about it."""
    if len(names) < 4:
        return ""
    rows = []
    for name, value in names.items():
        rows += [f"   * - :py:obj:`~{module}.{name}`", f"     - {rst.inline(_first_line(value), module, known)}"]
    return ".. list-table::\n   :widths: 30 70\n   :class: summary\n\n" + "\n".join(rows) + "\n"


def _text(value: object) -> str:
    """The docstring of a value, where it is about this value and not about its type."""
    text = inspect.getdoc(value) or ""
    if not isinstance(value, type) and text == inspect.getdoc(type(value)):
        return ""
    return text


def _first_line(value: object) -> str:
    return _first_paragraph(_text(value)).replace("\n", " ")


def _entry(kind: str, name: str, value: object, module: str, known: set[str], same: str) -> list[str]:
    """The description of one name; `same`: the name under which it is described."""
    if isinstance(value, type):
        kind = "exception" if issubclass(value, BaseException) else "class"
    elif isinstance(value, property):
        kind = "property"
    elif not callable(value) or _is_value(value):
        kind = "data"
    takes = kind in ("function", "method", "class", "exception")
    lines = [f".. py:{kind}:: {name}{signature(value) if takes and not same else ''}", ""]
    if same:
        return [*lines, f"   The same as :py:obj:`{same}`.", ""]
    lines += rst.indented(rst.of_docstring(_text(value), module, known))
    if kind == "class":
        for own, member in _members(value):
            member_kind = "property" if isinstance(member, property) else "method"
            lines += rst.indented("\n".join(_entry(member_kind, own, member, module, known, "")))
    return [*lines, ""]


def _is_value(value: object) -> bool:
    return not inspect.isroutine(value) and not getattr(value, "__name__", "")


def _members(cls: type) -> list[tuple[str, object]]:
    """Public methods and properties that a class of mpijax defines and describes."""
    if cls.__name__ in ("Array", "ufunc"):  # on pages of their own
        return []
    found = []
    for name, member in vars(cls).items():
        function = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        if not name.startswith("_") and isinstance(function, types.FunctionType | property) and function.__doc__:
            found.append((name, function))
    return found


def signature(value: object) -> str:
    """(arguments) as the reader writes them: without annotations, `self` and addresses."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    parts, marked = [], False
    parameters = [p for p in found.parameters.values() if p.name not in ("self", "cls")]
    for i, p in enumerate(parameters):
        if p.kind is p.KEYWORD_ONLY and not marked:
            marked = True
            parts.append("*")
        if p.kind is p.VAR_POSITIONAL:
            marked = True
        stars = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        default = "" if p.default is p.empty else f"={_shown(p.default)}"
        parts.append(f"{stars}{p.name}{default}")
        following = parameters[i + 1].kind if i + 1 < len(parameters) else None
        if p.kind is p.POSITIONAL_ONLY and following is not p.POSITIONAL_ONLY:
            parts.append("/")
    return f"({', '.join(parts)})"


def _shown(default: object) -> str:
    if callable(default) or isinstance(default, types.ModuleType):
        return getattr(default, "__name__", "...").replace("<lambda>", "...")
    text = repr(default)
    return "..." if text.startswith("<") or "\n" in text or " at 0x" in text or len(text) > 60 else text
