"""Jobs in which one thing goes wrong: what docs/stalls.md promises holds for each row of the table of faults."""

from __future__ import annotations

import pytest
from faults import promises
from faults.rows import ROWS
from faults.run import abandoned_files, faults
from launching import marked
from once import computed_once, shared_folder

# In the default run other files have jobs with these faults: tests/runtime/reports/test_watchdog.py, and four files of
# tests/runtime/matching. Most of those jobs have several faults, one after the other.
ELSEWHERE = {
    promises.DIFFERENT, promises.MEANT, promises.MESSAGE, promises.SHORT, promises.COMMUNICATORS, promises.RING, promises.UNSTARTED,
    promises.LATE, promises.EXITED, promises.INTERRUPTED, promises.THREADS, promises.NOT_A_RANK, promises.FREED,
}  # fmt: skip
# In the default run: the first row of each of the other promises.
OFTEN = sorted({next(row.name for row in ROWS if row.promise is p) for p in promises.PROMISES if p not in ELSEWHERE})


def outcomes(folders, name, rows):
    folder = shared_folder(folders, name)
    return computed_once(folder, lambda: faults(rows, folder))


@pytest.fixture(scope="module")
def often(tmp_path_factory):
    return outcomes(tmp_path_factory, "faults", [row for row in ROWS if row.name in OFTEN])


@marked
@pytest.mark.parametrize("name", OFTEN)
def test_what_is_promised(often, name):
    assert not often[name], often[name]


@marked
@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_what_is_promised_of_all_faults(tmp_path_factory):
    found = outcomes(tmp_path_factory, "all faults", ROWS)
    assert {name: text for name, text in found.items() if text} == {}
    assert abandoned_files() == []


def test_the_page_has_the_promises():
    assert promises.PAGE.read_text() == promises.page(), "run python tests/faults/promises.py --renew"


def test_the_table():
    assert {row.promise for row in ROWS} == set(promises.PROMISES)
    assert len({row.name for row in ROWS}) == len(ROWS) > 300
