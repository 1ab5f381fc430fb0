"""Orbax: a checkpoint of arrays and numbers, saved and restored."""

import tempfile

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp


def run():
    tree = {"w": jax.random.normal(jax.random.key(0), (8, 4)), "step": 3, "nested": {"b": jnp.arange(5)}}
    with tempfile.TemporaryDirectory() as folder, ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(f"{folder}/one", tree)
        checkpointer.wait_until_finished()
        again = checkpointer.restore(f"{folder}/one", tree)
    return {"w": again["w"], "step": again["step"], "b": again["nested"]["b"]}
