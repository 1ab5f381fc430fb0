"""Private modules of mpi4jax that programs import."""

from __future__ import annotations

import numpy as np
import pytest

import mpijax as jax
from mpijax.mpi._src import jax_compat, validation, xla_bridge


@validation.enforce_types(count=np.integer, name=(str, type(None)))
def repeated(x, count, name=None):
    return [x] * count


def test_arguments_of_the_given_types_pass():
    assert repeated(1.5, 2) == repeated(1.5, np.int8(2), name="x") == [1.5, 1.5]
    assert jax.jit(repeated, static_argnums=1)(1, 2)[1] == 1


@pytest.mark.parametrize(
    ("args", "text"),
    [
        ((0, True), r'argument "count" \(expected: integer, got: <class \'bool\'>\)\.'),
        ((0, 1.0), r'argument "count" \(expected: integer, got: <class \'float\'>\)\.'),
        ((0, 1, 2), r"argument \"name\" \(expected: \['str', 'NoneType'\], got: <class 'int'>\)"),
    ],
)
def test_others_are_refused(args, text):
    with pytest.raises(TypeError, match=f"repeated got unexpected type for {text}"):
        repeated(*args)


def test_a_traced_argument_is_said_to_be_one():
    with pytest.raises(TypeError, match="an abstract tracer was passed"):
        jax.jit(repeated)(1, 2)


def test_names_are_those_of_the_function():
    with pytest.raises(ValueError, match='got unexpected argument "y"'):
        validation.enforce_types(y=int)(repeated)


def test_there_is_nothing_for_devices():
    assert not xla_bridge.HAS_CUDA_EXT and not xla_bridge.HAS_XPU_EXT


@pytest.mark.parametrize(
    ("text", "numbers"),
    [("0.10.2", (0, 10, 2)), ("1.2", (1, 2)), ("0.1.61+cuda110", (0, 1, 61)), ("0.1.61a1", (0, 1, 61)), ("1.2.3.4", (1, 2, 3))],
)
def test_versions(text, numbers):
    assert jax_compat.versiontuple(text) == numbers
