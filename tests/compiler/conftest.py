"""Tests of the compiler: each stage checks the rules of the form that it gives (`jax_enable_checks`)."""

from checked_forms import forms_are_checked  # noqa: F401


def pytest_addoption(parser):
    parser.addoption("--update-golden", action="store_true", help="write the golden texts of the compiler anew")
