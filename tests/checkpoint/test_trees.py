"""What comes back of a tree, on one rank; and what other programs read of it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import ml_dtypes
import numpy as np
import pytest
from checkpoint.trees import NARROW, WIDE, Pair, State, assert_same, bits, everything, state

import mpijax as jax
from mpijax import numpy as jnp
from mpijax.checkpoint import CheckpointError, restore, save


def test_everything_comes_back_as_like(folder):
    tree = everything()
    save(folder, tree)
    found = restore(folder, tree)
    assert_same(found, tree)
    assert isinstance(found["nodes"], State) and isinstance(found["pair"], Pair)
    assert isinstance(found["numpy"]["int64"], np.ndarray) and isinstance(found["arrays"]["int4"], jax.Array)


def test_without_like_containers_are_pythons(folder):
    tree = everything()
    save(folder, tree)
    found = restore(folder)
    moments = found["nodes"].pop("moments")
    assert found["nodes"].keys() == {"params", "step"} and moments.keys() == {"mean", "square"}
    assert found["pair"][1] == 5 and found["empty"][1:] == [{}, (), []]
    assert_same({**found, "nodes": 0, "pair": 0, "zero-d": 0}, {**tree, "nodes": 0, "pair": 0, "zero-d": 0})
    assert [bits(x) for x in found["zero-d"][::2]] == [bits(x) for x in tree["zero-d"][::2]]
    assert found["zero-d"][1].shape == () and float(found["zero-d"][1]) == 0.1


@pytest.mark.parametrize("tree", [3, None, [], jnp.ones(2), np.float32(2)], ids=repr)
def test_a_tree_may_be_a_leaf(folder, tree):
    save(folder, tree)
    assert_same(restore(folder, tree), tree)


def test_like_may_be_types_and_a_part(folder):
    save(folder, state())
    like = jax.eval_shape(lambda: {"params": state().params})
    assert_same(restore(folder, like)["params"], state().params)
    assert restore(folder, {"step": 0}) == {"step": 17}
    assert float(restore(folder, {"moments": {"square": [1.0]}})["moments"]["square"][0]) == 2.0


@pytest.mark.parametrize(
    "like, said",
    [
        ({"params": {"v": 0, "w": 0}}, "has no params/v, which `like` has. `mpijax checkpoint show"),
        ({"params": {"w": jnp.ones((4, 3))}}, r"params/w is float32\[3, 4\] in the checkpoint and float32\[4, 3\]"),
        ({"params": {"w": jnp.ones((3, 4), jnp.int32)}}, r"params/w is float32\[3, 4\] .* int32\[3, 4\]"),
    ],
    ids=["absent", "shape", "dtype"],
)
def test_like_that_does_not_fit(folder, like, said):
    save(folder, state())
    with pytest.raises(CheckpointError, match=said):
        restore(folder, like)


@pytest.mark.parametrize(
    "tree, said",
    [
        ({"f": print}, "f is a builtins.builtin_function_or_method"),
        ({"o": np.array([None])}, "cannot hold o, an array of object"),
        ({(1, 2): 1.0}, r"the key \(1, 2\) of type tuple"),
        ({"t": np.array(["2020"], "M8[D]")}, r"cannot hold t, an array of datetime64"),
    ],
    ids=["function", "object", "key", "date"],
)
def test_what_cannot_be_kept(folder, tree, said):
    with pytest.raises(CheckpointError, match=said):
        save(folder, tree)
    assert list(folder.parent.iterdir()) == []


def test_a_save_replaces_the_checkpoint_and_nothing_else(folder):
    save(folder, {"a": jnp.ones(3)})
    save(folder, {"b": 2})
    assert restore(folder) == {"b": 2} and [p.name for p in folder.parent.iterdir()] == ["state"]
    other = folder.parent / "mine"
    other.mkdir()
    (other / "thesis.txt").write_text("words")
    with pytest.raises(CheckpointError, match="exists and is not a checkpoint: it is not replaced"):
        save(other, {"b": 2})
    assert (other / "thesis.txt").read_text() == "words"


def test_many_chunks_and_parts_of_chunks(folder, monkeypatch):
    from mpijax.checkpointing import chunks

    monkeypatch.setattr(chunks.chunk_shape, "__defaults__", (1000,))
    x = np.random.default_rng(0).normal(size=(37, 53)).astype(np.float32)
    save(folder, {"x": jnp.asarray(x), "t": np.asfortranarray(x), "z": np.zeros((20, 50))})
    assert len(list((folder / "x").iterdir())) > 5
    found = restore(folder)
    np.testing.assert_array_equal(found["x"], x)
    np.testing.assert_array_equal(found["t"], x)
    np.testing.assert_array_equal(found["z"], 0)


def test_arrays_of_a_process_with_several_devices(folder):
    code = """
import sys, numpy as np, mpijax as jax
from mpijax import numpy as jnp
from mpijax.checkpoint import save, restore
mesh = jax.make_mesh((4,), ("x",))
x = jax.device_put(np.arange(16.0).reshape(8, 2), jax.NamedSharding(mesh, jax.P("x")))
save(sys.argv[1], {"x": x})
y = restore(sys.argv[1], {"x": x})["x"]
assert y.sharding == x.sharding and len(y.addressable_shards) == 4
np.testing.assert_array_equal(y, x)
np.testing.assert_array_equal(jnp.sin(y) * 2, jnp.sin(x) * 2)
np.testing.assert_array_equal(restore(sys.argv[1])["x"], x)
"""
    env = {**os.environ, "MPIJAX_NUM_LOCAL_DEVICES": "4"}
    done = subprocess.run([sys.executable, "-c", code, folder], env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_other_readers(folder):
    """The zarr package reads all arrays; narrow types are unsigned integers, with their name in the attributes."""
    zarr = pytest.importorskip("zarr")
    tree = everything()
    save(folder, tree)
    group = zarr.open_group(folder, mode="r")
    for name in WIDE:
        np.testing.assert_array_equal(group[f"arrays.{name}"][...], tree["arrays"][name])
    for name in NARROW:
        array = group[f"arrays.{name}"]
        dtype = np.dtype(getattr(ml_dtypes, array.attrs["dtype"]))
        assert array[...].view(dtype).tobytes() == np.asarray(tree["arrays"][name]).tobytes()
    assert group["empty.0"].shape == (0, 3) and float(group["zero-d.1"][()]) == 0.1
    assert group["arrays.float32"].metadata.dimension_names == ("arrays.float32_0", "arrays.float32_1")


def test_there_is_json_and_chunks_alone(folder):
    save(folder, everything())
    about = json.loads((folder / "zarr.json").read_text())["attributes"]["mpijax"]
    assert {"node": "checkpoint.trees.State"}.items() <= dict(about["tree"]["dict"])["nodes"].items()
    for file in folder.rglob("*"):
        assert file.is_dir() or file.name == "zarr.json" or file.name.split(".")[0] == "c"


def test_names_of_files_are_harmless(folder):
    save(folder, {"../../x": jnp.ones(1), "/etc": jnp.ones(1), "zarr.json": jnp.ones(1), ".": jnp.ones(1), "é" * 300: jnp.ones(1)})
    assert sorted(p.name for p in folder.parent.iterdir()) == ["state"]
    assert len(restore(folder)) == 5


def test_without_tensorstore_the_remedy_is_named(folder):
    code = f"""
import sys
sys.modules["tensorstore"] = None
import mpijax
mpijax.checkpoint.save({str(folder)!r}, [1])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'mpijax[checkpoint]'" in done.stderr


def test_the_function_of_jax_is_still_that():
    import inspect
    import types

    import mpijax.checkpoint

    assert isinstance(mpijax.checkpoint, types.FunctionType) and mpijax.checkpoint.save is save
    assert "policy" in inspect.signature(mpijax.checkpoint).parameters
    assert float(jax.grad(jax.checkpoint(lambda x: jnp.sin(x) ** 2))(1.0)) == pytest.approx(np.sin(2.0), rel=1e-6)
