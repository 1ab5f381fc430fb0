"""Imports point downwards, those inside functions included. `mpijax/wiring.py` names what is handed down from above."""

from pathlib import Path

from structure.sources import MODULES, ROOT, Import, imports

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
    "core": ("base", "dtypes", "shapes", "trees", "sharding", "types", "rules", "programs", "tracing", "records"),
    "compiler": ("backend", "graph", "sharding", "fusion", "loops", "steps"),
    "runtime": ("machine", "reports", "mpi", "matching", "arrays", "program"),
}


def package_imports(path: Path) -> list[Import]:
    """What a file imports of mpijax when it runs."""
    return [i for i in imports(path) if i.module.split(".")[0] == "mpijax" and not i.for_types]


# Packages with a folder for each topic, and the modules that serve all topics.
SHARED = {
    "ops": "__init__ accuracy ad_ops barrier basic families linear_solve naming primitives rules same_bits shard_alike sum_casts",
    "numpy": "__init__ arguments fft linalg namespace_info util",
}


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
        for found in package_imports(path):
            there = layer(package(found.target))
            if package(found.target) != package(module) and None not in (here, there) and there > here:
                wrong.append(f"{path.relative_to(ROOT)}:{found.line} imports {found.target}, which lies above")
    assert not wrong, "\n".join(wrong)


def folder(module: str) -> tuple[str, int] | None:
    """The package and the number of the folder that a module lies in; None for modules of other packages."""
    _, package, name, *_ = (*module.split("."), "", "")
    return (package, FOLDERS[package].index(name)) if package in FOLDERS and name else None


def test_every_module_of_a_package_with_folders_lies_in_one():
    for package, names in FOLDERS.items():
        assert {p.parent.name for p in (ROOT / package).glob("*/*.py")} == set(names)
        assert [p.name for p in (ROOT / package).glob("*.py")] == ["__init__.py"]


def test_modules_of_a_topic_lie_in_its_folder():
    for package, names in SHARED.items():
        assert {p.stem for p in (ROOT / package).glob("*.py")} == set(names.split())


def test_folders_import_downwards():
    wrong = []
    for module, path in MODULES.items():
        here = folder(module)
        for found in package_imports(path):
            there = folder(found.target)
            if here and there and here[0] == there[0] and there[1] > here[1]:
                wrong.append(f"{path.relative_to(ROOT)}:{found.line} imports {found.target}, which lies above")
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
            targets = {package(i.target) for i in package_imports(path)} - {package(module)}
            arrows.setdefault(package(module), set()).update(targets)
    assert circles(arrows) == []


def test_modules_form_no_circle():
    arrows = {m: {i.target for i in package_imports(p) if not i.in_function} - {m} for m, p in MODULES.items()}
    assert circles(arrows) == []
