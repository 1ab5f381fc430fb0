"""docs/coverage.md says which names of JAX there are: it is up to date, and what is left out says why."""

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from mpijax import missing

pytest.importorskip("jax")
DOCS = Path(__file__).parents[2] / "docs"
COMPLETE = """numpy numpy.fft numpy.linalg lax lax.linalg nn nn.initializers random tree tree_util image ops
    dtypes""".split()


def test_the_document_is_up_to_date():
    """Counted in a process of its own: modules that something else has imported are names of JAX's too."""
    command = [sys.executable, str(DOCS / "make_coverage.py"), "--check"]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stderr


def test_what_must_be_complete_is():
    rows = re.findall(r"^\| `jax\.?([\w.]*)` \| (\d+) \| (\S+)", (DOCS / "coverage.md").read_text(), re.MULTILINE)
    share = {module: percent for module, count, percent in rows if int(count)}
    wanted = [*COMPLETE, *(m for m in share if m.startswith("scipy"))]
    assert {m: share[m] for m in wanted if share[m] != "100"} == {}


@pytest.mark.parametrize("name", [n for n in missing.left_out() if not n.endswith((".", ".*"))])
def test_names_left_out_say_why(name):
    module, _, attribute = f"mpijax.{name}".rpartition(".")
    with pytest.raises(AttributeError, match="has no attribute") as error:
        getattr(importlib.import_module(module), attribute)
    assert missing.left_out()[name] in str(error.value)


@pytest.mark.parametrize("name", ["mosaic", "jax2tf", "topologies"])
def test_modules_left_out_say_why(name):
    with pytest.raises(ImportError, match="mpijax does not have experimental"):
        importlib.import_module(f"mpijax.experimental.{name}")
    with pytest.raises(AttributeError, match=f"no attribute '{name}': ..."):
        getattr(importlib.import_module("mpijax.experimental"), name)


def test_other_names_are_only_unknown():
    with pytest.raises(AttributeError, match="^module 'mpijax.lax' has no attribute 'sine'$"):
        importlib.import_module("mpijax.lax").sine  # noqa: B018
