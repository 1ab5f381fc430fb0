"""The garbage collector runs rarely while a program is made, and as before afterwards."""

import gc
import threading

import pytest

import mpijax as jax
from mpijax.core.base.collector import rare_collections


@pytest.fixture(autouse=True)
def thresholds():
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_tracing_and_compiling():
    seen = []
    jax.jit(lambda x: seen.append(gc.get_threshold()) or x + 1)(1.0)
    assert seen[0][0] > 700
    assert gc.get_threshold() == (700, 10, 10)


def test_threads_that_end_in_any_order():
    entered, leave = threading.Event(), threading.Event()

    def other():
        with rare_collections():
            entered.set()
            leave.wait()

    thread = threading.Thread(target=other)
    with rare_collections():
        thread.start()
        entered.wait()
    assert gc.get_threshold()[0] > 700
    leave.set()
    thread.join()
    assert gc.get_threshold() == (700, 10, 10)


def test_errors():
    with pytest.raises(ZeroDivisionError), rare_collections():
        raise ZeroDivisionError
    assert gc.get_threshold() == (700, 10, 10)


@pytest.mark.parametrize("chosen", [(0, 10, 10), (1_000_000, 5, 5)])
def test_rarer_thresholds_of_the_user_stay(chosen):
    gc.set_threshold(*chosen)
    with rare_collections():
        assert gc.get_threshold() == chosen
    assert gc.get_threshold() == chosen


def test_thresholds_set_inside_stay():
    with rare_collections():
        gc.set_threshold(123, 4, 5)
    assert gc.get_threshold() == (123, 4, 5)
