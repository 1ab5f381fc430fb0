"""Names that are handed down from upper layers (`mpijax/wiring.py`): few, each used, and only from below."""

import re
from pathlib import Path

from structure.sources import MODULES, ROOT
from structure.test_layers import folder, layer, package

from mpijax import wiring

# Both may only fall: move what is asked for down, hand it over as an argument, or make it a slot of a primitive.
MOST_FROM_ABOVE, MOST_IN_CIRCLES = 52, 6

# `mpijax predict` stands between jitted functions and the engine, which lies below it.
REPLACED = {("mpijax.cli.predicted", "dispatch")}


def homes(table: tuple[tuple[str, str], ...]) -> dict[str, str]:
    """The module of each name."""
    return {entry.partition("=")[0]: module for module, names in table for entry in names.split()}


FROM_ABOVE, IN_CIRCLES = homes(wiring._FROM_ABOVE), homes(wiring._IN_CIRCLES)


def uses() -> set[tuple[str, str]]:
    """(module, name) for each use of a name, in Python and in extension modules."""
    extensions = (ROOT.parent / "cython_ext").glob("*.pyx")
    files: dict[str, Path] = {**MODULES, **{f"mpijax._ext.{path.stem}": path for path in extensions}}
    return {
        (module, name)
        for module, path in files.items()
        for name in re.findall(r"\bprovided\.(\w+)", path.read_text())
        if name in FROM_ABOVE or name in IN_CIRCLES
    }


USES = uses()


def height(module: str) -> tuple[int, int]:
    """The number of a module's layer, and of its folder in the package."""
    found, inside = layer(package(module)), folder(module)
    assert found is not None, f"{module} has no layer"
    return found, inside[1] if inside else 0


def test_every_name_is_used():
    unused = {*FROM_ABOVE, *IN_CIRCLES} - {name for _, name in USES}
    assert not unused, f"remove them from mpijax/wiring.py: {sorted(unused)}"


def test_names_are_used_only_from_below():
    wrong = {
        f"{module}: import {name} from {FROM_ABOVE[name]}"
        for module, name in USES - REPLACED
        if name in FROM_ABOVE and height(module) >= height(FROM_ABOVE[name])
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_names_of_circles_are_used_only_in_their_folder():
    wrong = {
        f"{module}: import {name} from {IN_CIRCLES[name]}"
        for module, name in USES
        if name in IN_CIRCLES and module.rpartition(".")[0] != IN_CIRCLES[name].rpartition(".")[0]
    }
    assert not wrong, "\n".join(sorted(wrong))


def test_there_are_few_names():
    assert len(FROM_ABOVE) <= MOST_FROM_ABOVE and len(IN_CIRCLES) <= MOST_IN_CIRCLES
