"""Orbax's CheckpointManager: a Flax TrainState trained, saved beside the program and restored, on any number of ranks."""

import tempfile

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
import orbax.checkpoint as ocp
from flax.training import train_state
from jax.experimental import multihost_utils
from jax.experimental.array_serialization import serialization


def run():
    if jax.process_count() > 1 and not jax.distributed.is_initialized():
        jax.distributed.initialize()
    mesh = jax.make_mesh((jax.device_count(),), ("ranks",), axis_types=(jax.sharding.AxisType.Auto,))
    rows, whole = (jax.NamedSharding(mesh, spec) for spec in (jax.P("ranks"), jax.P()))

    def laid_out(x):
        return jax.device_put(x, rows if np.ndim(x) == 2 else whole)

    net, x = nn.Dense(6), jax.random.normal(jax.random.key(1), (5, 8))
    params = net.init(jax.random.key(0), x)
    state = train_state.TrainState.create(apply_fn=net.apply, params=params, tx=optax.adam(1e-2))
    state = jax.tree.map(laid_out, state)

    @jax.jit
    def step(state):
        return state.apply_gradients(grads=jax.grad(lambda p: (state.apply_fn(p, x) ** 2).mean())(state.params))

    folder = multihost_utils.broadcast_one_to_all(np.frombuffer(tempfile.mkdtemp().encode().ljust(200), np.uint8))
    folder = bytes(folder).decode().strip()
    options = ocp.CheckpointManagerOptions(max_to_keep=2, save_interval_steps=2)
    with ocp.CheckpointManager(f"{folder}/run", options=options) as manager:
        for number in range(6):
            state = step(state)
            manager.save(number, args=ocp.args.StandardSave(state))
        manager.wait_until_finished()
        steps = manager.all_steps()
        like = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
        again = manager.restore(4, args=ocp.args.StandardRestore(like))
    again = step(again)
    kernel = again.params["params"]["kernel"]
    assert kernel.sharding.is_equivalent_to(rows, 2)
    assert len(kernel.addressable_shards) == jax.local_device_count()

    writer = serialization.GlobalAsyncCheckpointManager()
    calls = []
    writer.serialize_with_paths([kernel], [f"{folder}/kernel"], on_commit_callback=lambda: calls.append(1))
    writer.wait_until_finished()
    (read,) = writer.deserialize_with_paths([rows], [f"{folder}/kernel"])
    multihost_utils.sync_global_devices("end")
    assert len(calls) == (jax.process_index() == 0)
    whole_kernel = multihost_utils.process_allgather(kernel, tiled=True)
    np.testing.assert_array_equal(multihost_utils.process_allgather(read, tiled=True), whole_kernel)
    return {"steps": jnp.array(steps), "step": again.step, "kernel": whole_kernel, "bias": again.params["params"]["bias"]}
