"""Exceptions that nobody catches are shown without mpijax's own frames: those that are left are JAX's."""

import traceback
from pathlib import Path
from types import SimpleNamespace

import jax
import pytest

import mpijax
from mpijax.core.base import config, tracebacks

PACKAGE = Path(mpijax.__file__).parent

def under_grad(lib):
    lib.vmap(lib.grad(lambda x: lib.jit(decides)(x) * 2))(lib.numpy.ones(3))


def decides(x):
    return x if x > 0 else -x


def in_loop(lib):
    lib.jit(lambda x: lib.lax.scan(lambda c, _: (helper(lib, c), None), x, None, length=2)[0])(1.0)


def helper(lib, c):
    try:
        return c + lib.numpy.ones(3) @ lib.numpy.ones(4)
    except TypeError as error:
        raise ValueError("wrong sizes") from error


def caught(program, lib):
    with pytest.raises(Exception) as info:
        program(lib)
    return info.value


def frames(error):
    return [(frame.name, frame.line) for frame in traceback.extract_tb(error.__traceback__)]


@pytest.mark.parametrize("program", [under_grad, in_loop])
def test_the_frames_that_are_shown_are_jaxs(program, monkeypatch):
    expected, error = caught(program, jax), caught(program, mpijax)
    assert len(frames(error)) > len(frames(expected))
    shown = []
    monkeypatch.setattr(tracebacks, "_shown_by", lambda *exception: shown.append(exception))
    tracebacks.show(type(error), error, error.__traceback__)
    assert shown == [(type(error), error, error.__traceback__)]
    assert frames(error) == frames(expected)
    if error.__cause__ is not None:
        assert frames(error.__cause__)[0] == frames(expected.__cause__)[0]
        files = [Path(frame.filename) for frame in traceback.extract_tb(error.__cause__.__traceback__)]
        assert not any(file.is_relative_to(PACKAGE) for file in files)
    tracebacks.leave_out_own_frames(error)
    assert "".join(error.__notes__).count("JAX_TRACEBACK_FILTERING=off") == 1


def test_all_frames_are_shown_if_wanted():
    error = caught(under_grad, mpijax)
    whole = frames(error)
    for mode in ("off", "tracebackhide"):
        with config.traceback_filtering(mode):
            tracebacks.leave_out_own_frames(error)
    assert frames(error) == whole and not hasattr(error, "__notes__")


def test_ipython_shows_the_same(monkeypatch):
    expected, shown = frames(caught(under_grad, jax)), []
    shell = SimpleNamespace(
        custom_exceptions=(),
        set_custom_exc=lambda kinds, handler: shown.append((kinds, handler)),
        showtraceback=lambda exception, tb_offset: shown.append((exception, tb_offset)),
    )
    monkeypatch.setattr("builtins.get_ipython", lambda: shell, raising=False)
    monkeypatch.setattr("sys.excepthook", tracebacks.show)
    monkeypatch.setattr(tracebacks, "_shown_by", None)
    tracebacks.install()
    [((_, handler))] = shown
    error = caught(under_grad, mpijax)
    handler(shell, type(error), error, error.__traceback__, tb_offset=1)
    assert shown[1] == ((type(error), error, error.__traceback__), 1)
    assert frames(error) == expected
