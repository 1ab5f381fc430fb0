"""Train a small network, save checkpoints while it trains, and continue where a killed run stopped.

    python examples/resume.py run/                     one process
    mpirun -n 4 python examples/resume.py run/         four ranks, a quarter of every batch each
    sbatch launch/slurm-requeue.sh examples/resume.py run/

Kill it at any moment and start it again, on any number of ranks. It continues from the latest checkpoint in `run/`, and
prints the losses of an undisturbed run. On the same number of ranks, they are identical bit by bit. On SIGUSR2 or
SIGTERM (Slurm sends one before the time is over) it saves at the next step and exits with status 3: not finished yet.
"""

import argparse
import sys
from pathlib import Path

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax
from mpijax.checkpoint import Checkpointer
from mpijax.sharding import Mesh
from mpijax.sharding import PartitionSpec as P

BATCH, WIDTH, UNFINISHED = 48, 64, 3


def initial(steps):
    """The state of a run at its beginning: everything that later steps depend on, also the PRNG key and the losses."""
    a, b, key = jax.random.split(jax.random.key(0), 3)
    params = {"w": jax.random.normal(a, (2, WIDTH)), "v": jax.random.normal(b, (WIDTH,)) / WIDTH}
    speed = jax.tree.map(jnp.zeros_like, params)
    return {"params": params, "speed": speed, "key": key, "losses": jnp.full(steps, jnp.nan), "step": jnp.int32(0)}


def loss_of(params, points):
    """Mean squared error of a fit to sin(3x) cos(2y) on float32[n, 2] points."""
    fit = jnp.tanh(points @ params["w"]) @ params["v"]
    return jnp.mean((fit - jnp.sin(3 * points[:, 0]) * jnp.cos(2 * points[:, 1])) ** 2)


def make_step(mesh):
    """step(state) -> state, one program for all ranks. Each rank computes the loss of its part of the batch."""

    def gradient(params, points):
        return jax.value_and_grad(lambda p: lax.pmean(loss_of(p, points), "data"))(params)

    shared = jax.shard_map(gradient, mesh=mesh, in_specs=(P(), P("data")), out_specs=(P(), P()))

    def step(state):
        key, now = jax.random.split(state["key"])
        points = jax.random.uniform(now, (BATCH, 2), minval=-1, maxval=1)
        loss, grads = shared(state["params"], points)
        speed = jax.tree.map(lambda s, g: 0.9 * s - 0.02 * g, state["speed"], grads)
        params = jax.tree.map(jnp.add, state["params"], speed)
        losses = state["losses"].at[state["step"]].set(loss)
        return {"params": params, "speed": speed, "key": key, "losses": losses, "step": state["step"] + 1}

    return jax.jit(step, donate_argnums=0)


def train(folder, steps, every, progress=lambda step: None, memory=None):
    """The state after `steps` steps, or at a signal. Saves every `every` steps, and every `memory` steps in memory."""
    step = make_step(Mesh(np.array(jax.devices()), ("data",)))
    state = initial(steps)
    with Checkpointer(folder, keep=3, every=every, memory=memory) as checkpoints:
        begin = checkpoints.latest() or 0
        if begin:
            state = checkpoints.restore(like=state)
        for number in range(begin + 1, steps + 1):
            state = step(state)
            progress(number)
            checkpoints.save(number, state)  # copies the state if it is due; a thread writes it
            if checkpoints.should_stop():
                checkpoints.save(number, state, force=True)
                break
    return state


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="folder of the checkpoints")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--every", type=int, default=50, help="number of steps between checkpoints")
    parser.add_argument("--memory", type=int, help="number of steps between those in memory (mpijax run --restart)")
    args = parser.parse_args()
    state = train(args.folder, args.steps, args.every, memory=args.memory)
    done, losses = int(state["step"]), np.asarray(state["losses"])
    if jax.process_index() == 0:
        for number in range(0, done, max(done // 10, 1)):
            print(f"step {number + 1:5}  loss {losses[number].item().hex()}  {losses[number]:.6f}")
        print("finished" if done == args.steps else f"stopped after step {done}", flush=True)
    sys.exit(0 if done == args.steps else UNFINISHED)


if __name__ == "__main__":
    main()
