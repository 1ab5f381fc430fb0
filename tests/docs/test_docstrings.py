"""Every public function has an example in its docstring, which does what it says there."""

import docstrings
import pytest

import mpijax

OWNED = docstrings.owned()


@pytest.mark.parametrize("module", docstrings.MODULES)
def test_examples_do_what_they_say(module):
    reports = [docstrings.run(f"{module}.{name}", value) for name, value in OWNED[module].items()]
    assert "".join(reports) == ""


@pytest.mark.parametrize("module", docstrings.MODULES)
def test_names_without_an_example_are_listed(module):
    without, listed = docstrings.without_example(OWNED[module]), docstrings.listed(module)
    assert sorted(set(without) - set(listed)) == [], "need an example (>>> ) in their docstrings"
    assert sorted(set(listed) - set(without)) == [], f"have one now: python tests/docstrings.py --shrink {module}"


def test_all_modules_are_looked_at():
    modules = {module.removeprefix("mpijax.").split(".")[0] for module in docstrings.MODULES}
    assert mpijax._MODULES - modules == {"version"}
    assert {path.stem for path in docstrings.LISTS.glob("*.txt")} - set(docstrings.MODULES) == set()


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
