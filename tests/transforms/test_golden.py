"""Jaxprs print as JAX prints them: the same source, traced by both libraries when the test runs."""

import pytest
from oracle import OURS, THEIRS, Library, check, clean, same_text
from quickly import one_in
from transforms.documentation import DOCUMENTED, OTHER_TEXT, VALUED
from transforms.programs import PROGRAMS

CORPUS = PROGRAMS | {name: make for name, make in DOCUMENTED.items() if name not in OTHER_TEXT}


def text_of(library: Library, name: str) -> str:
    fun, args = CORPUS[name](library)
    return clean(str(library.make_jaxpr(fun)(*args)))


@pytest.mark.parametrize("name", one_in(3, CORPUS))
@pytest.mark.one_in(3)
def test_jaxpr_text_is_jaxs(name):
    theirs, ours = text_of(THEIRS, name), text_of(OURS, name)
    if not same_text(theirs, ours):
        assert ours == theirs


@pytest.mark.parametrize("name", one_in(2, VALUED))
@pytest.mark.one_in(3)
def test_values_are_jaxs(name):
    args = DOCUMENTED[name](OURS)[1]
    check(lambda J: DOCUMENTED[name](J)[0], *args, jaxpr=False, eager=False, rtol=2e-5, atol=1e-6)
