"""docs/coverage.md says which names of JAX there are: it is up to date, and what is left out says why."""

import importlib
import importlib.util
from pathlib import Path

import pytest

from mpijax import missing

pytest.importorskip("jax")
SCRIPT = Path(__file__).parents[2] / "docs" / "make_coverage.py"
COMPLETE = "numpy numpy.fft numpy.linalg lax.linalg nn nn.initializers random tree tree_util image ops dtypes".split()


@pytest.fixture(scope="module")
def script():
    spec = importlib.util.spec_from_file_location("make_coverage", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.filterwarnings("ignore")
def test_the_document_is_up_to_date(script):
    assert script.DOCUMENT.read_text() == script.document(), "run: python docs/make_coverage.py"


@pytest.mark.filterwarnings("ignore")
def test_what_must_be_complete_is(script):
    for module in [f"jax.{m}" for m in COMPLETE] + [m for m in script.modules() if m.startswith("jax.scipy")]:
        names = script.public_names(module)
        assert [n for n in names if not script.has(module, n)] == [], module


@pytest.mark.parametrize("name", [n for n in missing.left_out() if not n.endswith((".", ".*"))])
def test_names_left_out_say_why(name):
    module, _, attribute = f"mpijax.{name}".rpartition(".")
    with pytest.raises(AttributeError, match="has no attribute") as error:
        getattr(importlib.import_module(module), attribute)
    assert missing.left_out()[name] in str(error.value)


@pytest.mark.parametrize("name", ["pallas", "jet", "jax2tf", "rnn"])
def test_modules_left_out_say_why(name):
    with pytest.raises(ImportError, match="mpijax has no experimental"):
        getattr(importlib.import_module("mpijax.experimental"), name)


def test_other_names_are_only_unknown():
    with pytest.raises(AttributeError, match="^module 'mpijax.lax' has no attribute 'sine'$"):
        importlib.import_module("mpijax.lax").sine  # noqa: B018
