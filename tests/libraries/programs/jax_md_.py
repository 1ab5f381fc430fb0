"""jax-md: Lennard-Jones particles in a periodic box: energy, forces, minimisation, neighbour lists."""

import jax
import jax.numpy as jnp
from jax_md import energy, minimize, partition, quantity, space

jax.config.update("jax_enable_x64", True)


def run():
    side = 6.0
    displacement, shift = space.periodic(side)
    grid = jnp.stack(jnp.meshgrid(*[jnp.arange(4) * 1.5] * 3, indexing="ij"), -1).reshape(-1, 3)
    positions = grid + 0.1 * jax.random.normal(jax.random.key(0), grid.shape)
    pair = energy.lennard_jones_pair(displacement)
    init, apply = minimize.fire_descent(pair, shift, dt_start=1e-3, dt_max=4e-3)
    state = jax.lax.fori_loop(0, 50, lambda _, s: apply(s), init(positions))
    neighbours, with_list = energy.lennard_jones_neighbor_list(displacement, side, r_cutoff=2.0, dr_threshold=0.4)
    listed = neighbours.allocate(state.position)
    return {
        "start": pair(positions), "relaxed": pair(state.position), "forces": quantity.force(pair)(positions)[:3],
        "listed": with_list(state.position, neighbor=listed),
        "format": float(listed.idx.shape[0] > 0 and isinstance(listed, partition.NeighborList)),
    }  # fmt: skip
