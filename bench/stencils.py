"""Stencils in plain jnp on global arrays beside the same stencils with halos exchanged by hand, in one process.

    mpirun -n 2 python -m bench.stencils [--sizes 64 256] [--seconds 0.3]

For each program and size it prints the microseconds of a step in a `fori_loop`, the best of interleaved runs, and the
ratio.
"""

import argparse
import time

import numpy as np
from mpi4py import MPI

import mpijax as jax
from mpijax import NamedSharding, lax, mpi
from mpijax import numpy as jnp
from mpijax.sharding import Mesh
from mpijax.sharding import PartitionSpec as P


def heat(u):
    near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].add(0.1 * (near - 4 * u[1:-1, 1:-1]))


def heat_by_hand(u, cart):
    """`u` has a row of each neighbour above and below; the first and the last row of the field stay as they are."""
    inside = u[1:-1, 1:-1] + 0.1 * (u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2] - 4 * u[1:-1, 1:-1])
    new = u.at[1:-1, 1:-1].set(inside)
    if cart.rank == 0:
        new = new.at[1].set(u[1])
    if cart.rank == cart.size - 1:
        new = new.at[-2].set(u[-2])
    return mpi.halo_exchange(new, cart, axes=(0,))


def wave(state):
    u, v = state
    v = v + 0.1 * (jnp.roll(u, 1, 0) + jnp.roll(u, -1, 0) + jnp.roll(u, 1, 1) + jnp.roll(u, -1, 1) - 4 * u)
    return u + 0.1 * v, v


def wave_by_hand(state, cart):
    u, v = state
    inside = u[1:-1]
    sides = jnp.roll(inside, 1, 1) + jnp.roll(inside, -1, 1)
    v = v + 0.1 * (u[2:] + u[:-2] + sides - 4 * inside)
    return mpi.halo_exchange(u.at[1:-1].set(inside + 0.1 * v), cart, axes=(0,)), v


def with_borders(field, comm, periodic):
    """This rank's rows with one more above and below."""
    rows = len(field) // comm.size
    at = np.arange(comm.rank * rows - 1, (comm.rank + 1) * rows + 1)
    return field[at % len(field) if periodic else np.clip(at, 0, len(field) - 1)]


def programs(n, comm, sharding):
    """(name, step on global arrays, its state, step by hand, its state)"""
    field = np.random.default_rng(0).uniform(-1, 1, (n, n)).astype(np.float32)
    rows = n // comm.size
    mine = slice(comm.rank * rows, (comm.rank + 1) * rows)

    def put(x):
        return jax.device_put(x, sharding)

    yield "heat", heat, put(field), heat_by_hand, with_borders(field, comm, False), False
    still = np.zeros_like(field)
    yield "wave", wave, (put(field), put(still)), wave_by_hand, (with_borders(field, comm, True), still[mine]), True


def timed(call, state, comm):
    comm.Barrier()
    start = time.perf_counter()
    state = jax.block_until_ready(call(state))
    return comm.allreduce(time.perf_counter() - start, MPI.MAX), state


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stencils", description=__doc__.splitlines()[0])
    parser.add_argument("--sizes", type=int, nargs="*", default=[64, 128, 256, 512, 1024, 2048])
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each program and size (default 0.3)")
    args = parser.parse_args()
    comm = MPI.COMM_WORLD
    mesh = Mesh(np.array(jax.devices()), ("ranks",))
    for n in args.sizes:
        rows = NamedSharding(mesh, P("ranks"))
        for name, plain, global_state, by_hand, own_state, periodic in programs(n, comm, rows):
            cart = mpi.create_cart(1, periodic)
            turns = max(4, int(2e7 / n**2))

            def loop(step, turns=turns):
                return jax.jit(lambda s: lax.fori_loop(0, turns, lambda i, s: step(s), s), donate_argnums=0)

            calls = [loop(plain), loop(lambda s, step=by_hand, cart=cart: step(s, cart))]
            states = [global_state, jax.tree.map(jnp.asarray, own_state)]
            best = [float("inf")] * 2
            spent = 0.0
            while spent < args.seconds:
                for k in range(2):
                    seconds, states[k] = timed(calls[k], states[k], comm)
                    best[k] = min(best[k], seconds / turns)
                    spent += seconds
            if comm.rank == 0:
                ours, theirs = (b * 1e6 for b in best)
                print(f"{name} {n}x{n}: {ours:.2f} us a step, by hand {theirs:.2f}, x {ours / theirs:.2f}", flush=True)


if __name__ == "__main__":
    main()
