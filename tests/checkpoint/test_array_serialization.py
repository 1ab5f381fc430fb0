"""`experimental.array_serialization.pytree_serialization`: JAX's names, used as JAX's are, over any number of ranks."""

import ast
import re
from pathlib import Path

import pytest
from spmd.ranks import SIZE, P, assert_same, draw, mesh_1d

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.checkpoint import CheckpointError
from mpijax.experimental.array_serialization import pytree_serialization as ps

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # test_over_ranks.py changes the number


def test_names_are_jaxs():
    """Read from the source: importing it needs flatbuffers."""
    import jax as theirs

    source = Path(theirs.__file__).parent / "experimental" / "array_serialization" / "pytree_serialization.py"
    names = re.search(r"__all__ = (\[.*?\])", source.read_text(), re.DOTALL)[1]
    assert sorted(ast.literal_eval(names)) == sorted(ps.__all__)


def test_saved_and_loaded_in_another_sharding(folder):
    x, mesh = draw((2 * SIZE, 3)), mesh_1d()
    rows, whole = (jax.NamedSharding(mesh, spec) for spec in (P("i"), P()))
    data = {"x": jax.device_put(x, rows), "n": [jnp.ones(3)]}
    ps.save(data, folder)
    assert ps.load_pytreedef(folder)["n"] == [jax.ShapeDtypeStruct((3,), jnp.float32)]
    for sharding in (rows, whole):
        found = ps.load(folder, {"x": sharding, "n": whole})
        assert found["x"].sharding == sharding
        assert_same(found["x"], x)
    typed = {"x": jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=rows), "n": None}
    assert ps.load(folder, {"x": typed["x"], "n": whole}, mask={"x": True, "n": False})["n"] == [None]
    with pytest.raises(CheckpointError, match="overwrite is False"):
        ps.save(data, folder, overwrite=False)
    with pytest.raises(NotImplementedError, match="ts_specs"):
        ps.save(data, folder, ts_specs={})


def test_without_blocking(folder):
    x = draw((2 * SIZE, 3))
    rows = jax.NamedSharding(mesh_1d(), P("i"))
    future = ps.nonblocking_save({"x": jax.device_put(x, rows)}, folder)
    assert future.pytree["x"].shape == x.shape
    assert future.result() is None and future.done()
    assert_same(ps.nonblocking_load(folder, rows).result()["x"], x)


def test_what_is_missing_says_what_to_use():
    with pytest.raises((ImportError, AttributeError), match="mpijax.checkpoint"):
        jax.experimental.array_serialization.pytree_serialization_utils  # noqa: B018
