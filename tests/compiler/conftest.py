"""Tests of the compiler: each stage checks the rules of the form that it gives (`jax_enable_checks`)."""

import pytest

import mpijax


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden texts of the compiler anew")


@pytest.fixture(autouse=True)
def forms_are_checked():
    with mpijax.enable_checks(True):
        yield
