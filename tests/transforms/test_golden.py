"""Jaxprs print as JAX prints them: the same source, traced by both libraries when the test runs."""

import pytest
from oracle import OURS, THEIRS, Library, clean, same_text
from transforms.programs import PROGRAMS


def text_of(library: Library, name: str) -> str:
    fun, args = PROGRAMS[name](library)
    return clean(str(library.make_jaxpr(fun)(*args)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_jaxpr_text_is_jaxs(name):
    theirs, ours = text_of(THEIRS, name), text_of(OURS, name)
    if not same_text(theirs, ours):
        assert ours == theirs
