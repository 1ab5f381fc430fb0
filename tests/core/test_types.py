"""Types are one object while they are in use; what is known of them does not grow without end."""

from __future__ import annotations

import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import mpijax as jax
from mpijax import lax
from mpijax.compiler.graph import build
from mpijax.core.types.avals import ShapedArray
from mpijax.ops import families

F32 = np.dtype("float32")


def test_equal_types_are_one_object():
    assert ShapedArray((12, 345), F32) is ShapedArray([12, 345], "float32") is jax.typeof(np.ones((12, 345), F32))
    with ThreadPoolExecutor(8) as pool:
        for n in range(200):
            assert len(set(pool.map(lambda _, n=n: ShapedArray((n, 98_765), F32), range(8)))) == 1


def test_a_type_that_nothing_uses_is_forgotten():
    known = len(ShapedArray._table)
    used = ShapedArray((54_321,), F32)
    unused = weakref.ref(ShapedArray((54_322,), F32))
    assert unused() is None
    assert len(ShapedArray._table) <= known + 1
    assert ShapedArray((54_321,), F32) is used


def test_an_operation_forgets_types():
    rule = families.elementwise_type("any", (families.ANY,), None)
    first = weakref.ref(rule(ShapedArray((54_323,), F32)))
    assert first() is rule(ShapedArray((54_323,), F32))
    for n in range(families._MAX_KNOWN):
        rule(ShapedArray((n, 3, 1), F32))
    assert first() is None


def test_decompositions_are_forgotten(monkeypatch):
    monkeypatch.setattr(build, "_decompositions", {})
    monkeypatch.setattr(build, "_MAX_DECOMPOSITIONS", 3)
    for n in range(1, 6):
        build.build_graph(jax.make_jaxpr(lambda x: lax.bitcast_convert_type(x, np.uint8))(np.ones(n, F32)))
        assert 0 < len(build._decompositions) <= 3
