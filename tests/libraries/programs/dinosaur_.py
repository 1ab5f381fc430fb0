"""The spherical transform of an atmosphere model, and its derivatives on the sphere."""

import jax
import jax.numpy as jnp
from dinosaur import spherical_harmonic


def run():
    grid = spherical_harmonic.Grid.T21()
    lon, sin_lat = grid.nodal_mesh
    field = jnp.cos(2 * lon) * (1 - sin_lat**2) + sin_lat
    modal = jax.jit(grid.to_modal)(field)
    back = jax.jit(grid.to_nodal)(modal)
    lap = grid.to_nodal(grid.laplacian(modal))
    slope = jax.grad(lambda m: jnp.sum(grid.to_nodal(m) ** 2))(modal)
    return {"back": back, "laplacian": lap, "slope": slope, "filtered": grid.to_nodal(grid.clip_wavenumbers(modal))}
