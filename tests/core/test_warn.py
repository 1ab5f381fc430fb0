"""Warnings name the user's line, by whatever way the code that warns was reached."""

import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import mpijax
import mpijax.numpy as jnp

ROOT = Path(mpijax.__file__).parent


def promoted():
    with mpijax.numpy_rank_promotion("warn"):
        return jnp.ones((2, 3)) + jnp.ones(3)


def one_dtype(name):
    return lambda: getattr(jnp, name)(3, dtype="float64")


PROGRAMS = {
    "zeros": one_dtype("zeros"),
    "ones": one_dtype("ones"),
    "arange": one_dtype("arange"),
    "eye": one_dtype("eye"),
    "astype": lambda: jnp.ones(3).astype("float64"),
    "astype under jit": lambda: mpijax.jit(lambda x: x.astype("int64"))(jnp.ones(3)),
    "asarray": lambda: jnp.asarray([1.0], dtype="float64"),
    "at.set": lambda: jnp.zeros(3).at[0].set(1j),
    "at.add": lambda: jnp.zeros(3, jnp.int32).at[0].add(1.5),
    "rank promotion": promoted,
    "jit's device": lambda: mpijax.jit(lambda x: x, device=mpijax.devices()[0]),
    "donation": lambda: mpijax.jit(lambda x: x.sum(), donate_argnums=0)(jnp.ones(5)),
    "size of a list": lambda: jnp.ndim([1, 2]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_warning_names_the_users_line(name):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        PROGRAMS[name]()
    assert caught, "no warning"
    assert {w.filename for w in caught} == {__file__}


def test_no_level_is_counted_by_hand():
    """But in `jax.core`, whose module `__getattr__` Python calls for the user directly."""
    counting = [p.relative_to(ROOT) for p in ROOT.rglob("*.py") if re.search(r"stacklevel=", p.read_text())]
    assert counting == [Path("core", "__init__.py")]


def test_a_deprecation_in_the_main_program_is_shown(tmp_path):
    """Python shows a DeprecationWarning only of `__main__`."""
    program = tmp_path / "program.py"
    program.write_text("import mpijax\nmpijax.jit(lambda x: x, backend='cpu')\n")
    ran = subprocess.run([sys.executable, program], capture_output=True, text=True, check=True)
    assert f"{program}:2: DeprecationWarning" in ran.stderr
