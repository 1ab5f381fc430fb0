"""A fixture of folders with tests of the compiler: each stage checks the rules of the form that it gives."""

import pytest

import mpijax


@pytest.fixture(autouse=True)
def forms_are_checked():
    with mpijax.enable_checks(True):
        yield
