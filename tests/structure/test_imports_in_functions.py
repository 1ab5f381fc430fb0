"""Imports stand at the top of a module; a module is named in a string only where names are loaded on demand."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from structure.sources import MODULES, ROOT, imports, nodes
from structure.test_layers import LAYERS

# Slow to load, or optional.
THIRD_PARTY = {"IPython", "cloudpickle", "llvmlite", "mpi4py", "numba", "opt_einsum", "scipy", "tensorstore", "tqdm"}

# A command starts before it knows what it needs, and must answer at once; a worker must not start MPI too early; each
# import of mpijax begins with the bundle of bytecode, which few processes write.
START_UP = ("mpijax.bytecode", "mpijax.cli", "mpijax.distributed")

# Loads modules by name: names of upper layers, and the classes named in a record.
BY_NAME = {
    "mpijax.core.base.provided",
    "mpijax.faces",
    "mpijax.core.records.plain",
    # JAX's modules are found by their names.
    "mpijax.aliasing.finders",
    "mpijax.aliasing.names",
    "mpijax.cli.library",
}


def may_wait(module: str) -> bool:
    """Whether a module may be imported inside a function: extension modules load SciPy's or MPI's libraries."""
    return module.startswith("mpijax._ext.") or module.split(".")[0] in THIRD_PARTY


def test_functions_import_only_what_is_slow_to_load():
    wrong = [
        f"{path.relative_to(ROOT)}:{i.line} imports {i.full} inside a function"
        for module, path in MODULES.items()
        if not module.startswith(START_UP)
        for i in imports(path)
        if i.in_function and not may_wait(i.full)
    ]
    assert not wrong, "\n".join(wrong)


def loads_by_name(path: Path) -> Iterator[int]:
    """The lines that call `import_module` or `__import__` with anything but the name of another project."""
    for node in nodes(path):
        if isinstance(node, ast.Call):
            name = getattr(node.func, "attr", getattr(node.func, "id", ""))
            given = node.args[0] if node.args else None
            other = isinstance(given, ast.Constant) and str(given.value).split(".")[0] != "mpijax"
            if name in ("import_module", "__import__") and not other:
                yield node.lineno


def test_modules_are_named_in_strings_only_by_faces_of_packages():
    """A face (`__init__`) may load its public names on demand."""
    wrong = [
        f"{path.relative_to(ROOT)}:{line}"
        for module, path in MODULES.items()
        if path.name != "__init__.py" and module not in BY_NAME
        for line in loads_by_name(path)
    ]
    assert not wrong, "\n".join(wrong)


def test_extension_modules_name_no_upper_package():
    """They reach up through `mpijax.core.base.provided` alone."""
    upper = "|".join(sorted({name for names in LAYERS for name in names} - {"_ext"}))
    named = re.compile(rf"(?:^\s*(?:from|import|cimport)\s+|[\"'])mpijax\.(?:{upper})\b")
    allowed = "from mpijax.core.base import provided"
    wrong = [
        f"{path.name}:{number} {line.strip()}"
        for path in sorted((Path(__file__).parents[2] / "cython_ext").glob("*.p[yx][xd]"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if named.search(line) and line.strip() != allowed
    ]
    assert not wrong, "\n".join(wrong)
