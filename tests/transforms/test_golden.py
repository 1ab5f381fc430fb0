"""Jaxprs print as JAX prints them: the same source, traced by both libraries when the test runs."""

import importlib
import re

import pytest
from transforms.programs import PROGRAMS


class Library:
    """The modules of jax or mpijax by short names, loaded when a program asks for them."""

    def __init__(self, root: str):
        self.root = root

    def __getattr__(self, name: str):
        module = {"jax": self.root, "jnp": f"{self.root}.numpy"}.get(name, f"{self.root}.{name}")
        return importlib.import_module(module)

    @property
    def P(self):
        return self.sharding.PartitionSpec


def normalised(text: str) -> str:
    """Without what JAX prints by accident: NumPy's integers among Python's, addresses of functions."""
    text = re.sub(r"np\.int(?:32|64)\((-?\d+)\)", r"\1", text)
    return re.sub(r" at 0x[0-9a-f]+", "", text)


def text_of(root: str, name: str) -> str:
    j = Library(root)
    fun, args = PROGRAMS[name](j)
    return normalised(str(j.jax.make_jaxpr(fun)(*args)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_jaxpr_text_is_jaxs(name):
    assert text_of("mpijax", name) == text_of("jax", name)
