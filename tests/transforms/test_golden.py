"""Jaxprs print as JAX prints them: the same source, traced by both libraries when the test runs."""

import re

import pytest
from oracle import OURS, THEIRS, Library, clean
from transforms.programs import PROGRAMS


def text_of(library: Library, name: str) -> str:
    fun, args = PROGRAMS[name](library)
    # JAX prints some of its integers as NumPy's.
    return re.sub(r"np\.int(?:32|64)\((-?\d+)\)", r"\1", clean(str(library.make_jaxpr(fun)(*args))))


@pytest.mark.parametrize("name", PROGRAMS)
def test_jaxpr_text_is_jaxs(name):
    assert text_of(OURS, name) == text_of(THEIRS, name)
