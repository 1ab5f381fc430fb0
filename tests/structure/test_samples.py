"""Which cases of a sampled test are in the default run (tests/quickly.py)."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

import pytest
from quickly import left_out_of_samples


class Case:
    """A case of a test, as pytest collects it."""

    path, parent, originalname = "test_file.py", None, "test"

    def named(self, name: str) -> Case:
        self.originalname = name
        return self

    def __init__(self, tables: dict[str, list], values: tuple, *marks: Any):
        names = [n for argument in tables for n in argument.split(", ")]
        self.callspec = SimpleNamespace(params=dict(zip(names, values, strict=True)))
        self.marks = [*(pytest.mark.parametrize(names, table).mark for names, table in tables.items()), *marks]
        self.keywords = {mark.name for mark in self.marks}

    def iter_markers(self, name: str) -> list:
        return [mark for mark in self.marks if mark.name == name]

    def get_closest_marker(self, name: str) -> Any:
        return next(iter(self.iter_markers(name)), None)


def cases(tables: dict[str, list], *marks: Any) -> list[Case]:
    """All cases of a test with these tables of parameters. A table of several names has tuples."""
    rows = itertools.product(*([row if ", " in names else (row,) for row in table] for names, table in tables.items()))
    return [Case(tables, sum(row, ()), *marks) for row in rows]


def kept(found: list[Case], count: int | None = None) -> list[tuple]:
    left_out = left_out_of_samples(found, count)
    return [tuple(case.callspec.params.values()) for case in found if case not in left_out]


def one_in(count: int) -> Any:
    return pytest.mark.one_in(count).mark


def test_one_of_each_n_values_stays():
    assert kept(cases({"x": list(range(7))}, one_in(3))) == [(0,), (3,), (6,)]
    assert kept(cases({"x, y": [(k, 0) for k in range(5)]}, one_in(2))) == [(0, 0), (2, 0), (4, 0)]
    assert kept(cases({"x": [1, 2]})) == [(1,), (2,)]


@pytest.mark.parametrize("n", [2, 3, 4])
def test_of_a_product_a_diagonal_stays(n):
    found = kept(cases({"x": list("abcd"), "y": list(range(6))}, one_in(n)))
    assert 24 // n - 2 <= len(found) <= 24 // n + 2
    assert {x for x, _ in found} == set("abcd") and {y for _, y in found} == set(range(6))


def test_tests_of_a_file_begin_at_different_values():
    found = [case.named(name) for name in "abc" for case in cases({"x": [0, 1, 2]}, one_in(3))]
    few = [case.named("d") for case in cases({"x": [0]}, one_in(3))]
    assert kept([*found, *few]) == [(0,), (1,), (2,), (0,)]


def test_what_is_slow_is_left_alone():
    slow = cases({"x": [0, 1, 2]}, pytest.mark.slow.mark, one_in(2))
    assert kept([*slow, *cases({"x": [3, 4, 5]}, one_in(2))]) == [(0,), (1,), (2,), (3,), (5,)]


def test_on_more_ranks_all_are_sampled_but_those_to_which_the_number_matters():
    assert kept(cases({"x": [0, 1, 2, 3]}), count=3) == [(0,), (3,)]
    assert len(kept(cases({"x": [0, 1, 2, 3]}, pytest.mark.many_ranks.mark), count=3)) == 4
