"""Every public function has an example in its docstring, which does what it says there."""

import importlib
import pkgutil

import docstrings
import pytest

import mpijax

OWNED = docstrings.owned()
ELSEWHERE = {
    "mpijax.experimental.custom_partitioning",  # hints to a partitioner: taken, and not needed
    "mpijax.experimental.shard_alike",
    "mpijax.extend.lowering",  # parts of a primitive: docs/add-a-primitive.md shows whole ones, and is run
    "mpijax.extend.sharding",  # the same
}


@pytest.mark.parametrize("module", docstrings.MODULES)
def test_examples_do_what_they_say(module):
    reports = [docstrings.run(f"{module}.{name}", value) for name, value in OWNED[module].items()]
    assert "".join(reports) == ""


@pytest.mark.parametrize("module", docstrings.MODULES)
def test_every_name_has_an_example(module):
    assert docstrings.without_example(OWNED[module]) == [], "need an example (>>> ) in their docstrings"


def test_all_modules_are_looked_at():
    modules = {module.removeprefix("mpijax.").split(".")[0] for module in docstrings.MODULES}
    assert mpijax._MODULES - modules == {"ad", "memory", "version"}
    for package in ("scipy", "experimental", "example_libraries", "extend", "interpreters"):
        assert set(listing_modules(f"mpijax.{package}")) - {*docstrings.MODULES, *ELSEWHERE} == set()


def listing_modules(package: str) -> list[str]:
    """The modules in a package that say what is public in them, and have more than modules."""
    path = importlib.import_module(package).__path__
    names = [info.name for info in pkgutil.walk_packages(path, f"{package}.")]
    return [n for n in names if hasattr(importlib.import_module(n), "__all__") and docstrings.public(n)]


@pytest.mark.parametrize(
    "text, problem",
    [
        (">>> jnp.arange(3)\nArray([0, 1, 2], dtype=int32)", ""),
        (">>> jnp.arange(3)\nArray([0, 1, 3], dtype=int32)", "Got:"),
        (">>> jnp.ones(1)\nArray([1.0000001], dtype=float32)", ""),
        (">>> jnp.ones(1)\nArray([1.01], dtype=float32)", "Got:"),
        (">>> jnp.ones(1)\nArray([1], dtype=float32)", "Got:"),
        (">>> jnp.ones((2, 1)).shape\n(2, 1, 1)", "Got:"),
        (">>> nothing", "NameError"),
    ],
)
def test_examples_that_are_wrong_are_seen(text, problem):
    class Example:
        __doc__ = text

    report = docstrings.run("example", Example)
    assert problem in report and bool(problem) == bool(report)
