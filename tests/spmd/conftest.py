"""Tests of programs over ranks: each stage of the compiler checks the rules of the form that it gives."""

from checked_forms import forms_are_checked  # noqa: F401
