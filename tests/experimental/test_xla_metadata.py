"""Hints for XLA are accepted and ignored."""

import importlib

import numpy as np
import pytest
from oracle import OURS, THEIRS


@pytest.mark.parametrize("J", [THEIRS, OURS], ids=["jax", "mpijax"])
def test_metadata_changes_no_value(J):
    tagged = importlib.import_module(f"{J.name}.experimental.xla_metadata").set_xla_metadata

    def f(x):
        with tagged(_xla_log=True):
            y = J.numpy.sin(x)
        return tagged({"y": y, "z": 2.0 * x}, breakpoint=True)

    @tagged(a="b")
    @J.jit
    def g(x):
        return f(x)["z"].sum()

    x = np.ones(3, np.float32)
    np.testing.assert_array_equal(J.jit(f)(x)["z"], 2 * x)
    np.testing.assert_array_equal(J.grad(g)(x), 2 * x)
    assert g.lower(x).compile()(x) == 6
    assert tagged(1.0, a=1).dtype == "float32"


@pytest.mark.parametrize("J", [THEIRS, OURS], ids=["jax", "mpijax"])
def test_scheduling_groups_change_no_value(J):
    groups = importlib.import_module(f"{J.name}.experimental.scheduling_groups")

    @groups.scheduling_group(name="a")
    def f(x):
        return 2 * groups.xla_metadata_call(J.numpy.sin, inlineable="false")(x)

    np.testing.assert_allclose(J.jit(J.vmap(f))(np.ones(3, np.float32)), 2 * np.sin(np.ones(3)), rtol=1e-6)
    np.testing.assert_allclose(J.grad(f)(1.0), 2 * np.cos(1.0), rtol=1e-6)
