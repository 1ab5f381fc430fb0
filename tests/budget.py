"""Says after a default run which tests take long, and whether all of them take more than they may: CONTRIBUTING.md.

Counted are seconds of CPU time, which other programs hardly change, of the test and of the processes it has waited for.
"""

from __future__ import annotations

import os

import pytest

# Of one test without its fixtures, of all tests alone, and of the tests of each of two ranks, of each of four.
LONG, ALONE, OF_TWO, OF_FOUR = 4.0, 750.0, 80.0, 60.0
_took: dict[str, float] = {}
_calls: dict[str, float] = {}


def cpu_seconds() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    began = cpu_seconds()
    try:
        return (yield)
    finally:
        item.user_properties.append(("CPU seconds of the call", round(cpu_seconds() - began, 3)))


_seen = 0.0


@pytest.hookimpl(trylast=True)
def pytest_collection_finish():
    global _seen
    _seen = cpu_seconds()


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_teardown(item):
    global _seen
    try:
        return (yield)
    finally:
        now = cpu_seconds()
        item.user_properties.append(("CPU seconds", round(now - _seen, 3)))  # since the last test, so with its fixtures
        _seen = now


def pytest_runtest_logreport(report):
    if report.when == "teardown":
        found = dict(report.user_properties)
        _took[report.nodeid] = found.get("CPU seconds", 0.0)
        if "slow" not in report.keywords:
            _calls[report.nodeid] = found.get("CPU seconds of the call", 0.0)


def pytest_terminal_summary(terminalreporter, config):
    if config.getoption("--slow"):
        return
    for name, seconds in sorted(_calls.items(), key=lambda x: -x[1]):
        if seconds > LONG:
            terminalreporter.write_line(f"WARNING: {name} took {seconds:.1f} CPU s: make it shorter, or mark it slow", yellow=True)
    total, ranks = sum(_took.values()), int(os.environ.get("PMI_SIZE", os.environ.get("OMPI_COMM_WORLD_SIZE", 1)))
    limit = ALONE if ranks == 1 else OF_TWO if ranks == 2 else OF_FOUR
    terminalreporter.write_line(f"{len(_took)} tests took {total:.0f} CPU s")
    if total > limit:
        terminalreporter.write_line(f"WARNING: they may take {limit:.0f} CPU s: see CONTRIBUTING.md", yellow=True)
