"""Imports point downwards, those inside functions included. `mpijax/wiring.py` names what is handed down from above."""

import ast
from functools import cache
from pathlib import Path

import mpijax

ROOT = Path(mpijax.__file__).parent

# From the bottom up. Packages of one layer may import each other, in one direction: the test of circles holds it.
LAYERS = (
    {"_ext", "scalar", "version"},
    {"core"},
    {"transforms"},
    {"ops"},
    {"lax"},
    {"compiler"},
    {"runtime"},
    {"spmd"},
    {"numpy", "mpi"},
    {"random"},
    {"nn"},
    {"scipy", "aliasing", "as_jax", "checkify", "checkpointing", "experimental", "federated", "extend", "interpreters", "export", "_src", "example_libraries"},
    {"cli", "distributed"},
)

# Folders inside of packages, from the bottom up. A folder imports only what lies below it.
FOLDERS = {
    "compiler": ("backend", "graph", "sharding", "fusion", "loops", "steps"),
    "runtime": ("machine", "reports", "mpi", "matching", "arrays", "program"),
}


def modules() -> dict[str, Path]:
    """The modules of the package by name."""
    found = {}
    for path in ROOT.rglob("*.py"):
        parts = ("mpijax", *path.relative_to(ROOT).with_suffix("").parts)
        found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


MODULES = modules()


def _is_for_types(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"


@cache
def imports(path: Path) -> list[tuple[str, bool, int]]:
    """What a file imports of mpijax: the module, whether inside a function, and the line."""
    found: list[tuple[str, bool, int]] = []

    def visit(node: ast.AST, inside: bool) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.ImportFrom) and (child.module or "").split(".")[0] == "mpijax":
                for name in child.names:
                    full = f"{child.module}.{name.name}"
                    found.append((full if full in MODULES else child.module, inside, child.lineno))
            elif isinstance(child, ast.Import):
                found.extend((n.name, inside, child.lineno) for n in child.names if n.name.split(".")[0] == "mpijax")
            if not _is_for_types(child):
                visit(child, inside or isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)))

    visit(ast.parse(path.read_text()), False)
    return found


def package(module: str) -> str:
    """The part of the package that a module belongs to; modules beside the packages stand for themselves."""
    parts = module.split(".")
    return parts[1] if len(parts) > 1 else module


def layer(name: str) -> int | None:
    """The number of a package's layer; None for the public modules beside the packages."""
    return next((i for i, names in enumerate(LAYERS) if name in names), None)


def test_every_package_has_a_layer():
    packages = {p.parent.name for p in ROOT.glob("*/__init__.py")}
    assert packages == {n for names in LAYERS for n in names if (ROOT / n).is_dir()}


def test_imports_point_downwards():
    wrong = []
    for module, path in MODULES.items():
        here = layer(package(module))
        for target, _, line in imports(path):
            there = layer(package(target))
            if package(target) != package(module) and None not in (here, there) and there > here:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}, which lies above")
    assert not wrong, "\n".join(wrong)


def folder(module: str) -> tuple[str, int] | None:
    """The package and the number of the folder that a module lies in; None for modules of other packages."""
    _, package, name, *_ = (*module.split("."), "", "")
    return (package, FOLDERS[package].index(name)) if package in FOLDERS and name else None


def test_every_module_of_a_package_with_folders_lies_in_one():
    for package, names in FOLDERS.items():
        assert {p.parent.name for p in (ROOT / package).glob("*/*.py")} == set(names)
        assert [p.name for p in (ROOT / package).glob("*.py")] == ["__init__.py"]


def test_folders_import_downwards():
    wrong = []
    for module, path in MODULES.items():
        here = folder(module)
        for target, _, line in imports(path):
            there = folder(target)
            if here and there and here[0] == there[0] and there[1] > here[1]:
                wrong.append(f"{path.relative_to(ROOT)}:{line} imports {target}, which lies above")
    assert not wrong, "\n".join(wrong)


def circles(arrows: dict[str, set[str]]) -> list[list[str]]:
    """Groups of names that reach each other (Tarjan's strongly connected components of two or more)."""
    number: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(at: str) -> None:
        number[at] = low[at] = len(number)
        stack.append(at)
        for to in sorted(arrows.get(at, ())):
            if to not in number:
                visit(to)
                low[at] = min(low[at], low[to])
            elif to in stack:
                low[at] = min(low[at], number[to])
        if low[at] == number[at]:
            group = stack[stack.index(at) :]
            del stack[stack.index(at) :]
            if len(group) > 1:
                found.append(sorted(group))

    for at in sorted(arrows):
        if at not in number:
            visit(at)
    return found


def test_packages_form_no_circle():
    """Imports inside functions count. The package's own face, which loads names by its table, is left out."""
    arrows: dict[str, set[str]] = {}
    for module, path in MODULES.items():
        if module != "mpijax":
            targets = {package(t) for t, _, _ in imports(path)} - {package(module)}
            arrows.setdefault(package(module), set()).update(targets)
    assert circles(arrows) == []


def test_modules_form_no_circle():
    arrows = {m: {t for t, inside, _ in imports(p) if not inside and t != m} for m, p in MODULES.items()}
    assert circles(arrows) == []
