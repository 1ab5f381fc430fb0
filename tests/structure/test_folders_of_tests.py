"""The tests of the compiler and of the runtime lie in folders named after those of the package that they test."""

from __future__ import annotations

from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]


def folders(parent: Path) -> set[str]:
    """The folders that have Python files."""
    return {folder.name for folder in parent.iterdir() if any(folder.glob("*.py"))}


@pytest.mark.parametrize("part", ["compiler", "runtime"])
def test_each_folder_has_its_counterpart_in_the_package(part):
    assert folders(TESTS / part) == folders(TESTS.parent / "mpijax" / part)


def test_folders_named_as_the_package_of_mpi_are_not_taken_for_the_marker(request):
    """In one process pytest-mpi skips tests with the keyword `mpi`, which the name of a folder would be."""
    tests = next(node for node in request.node.listchain() if node.path == TESTS)
    collect = request.session.gethookproxy(TESTS).pytest_collect_directory
    assert "mpi" not in collect(path=TESTS / "mpi", parent=tests).keywords
