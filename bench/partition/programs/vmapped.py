"""Functions of one example, over a split batch."""

from bench.partition.modules import jax, jnp, lax
from bench.partition.program import columns, program, rows, whole


@program("vmap/of a matrix product and a norm", rows(256, 16), whole(16, 16))
def product(x, w):
    return jax.vmap(lambda x: jnp.linalg.norm(w @ x))(x)


@program("vmap/interp", rows(256, 16), whole(64, drawn="sorted"), whole(64))
def interp(x, grid, values):
    return jnp.interp(x, grid, values)


@program("vmap/of interp, tables split", rows(64, 32), rows(64, 16))
def interp_tables(values, x):
    return jax.vmap(lambda v, x: jnp.interp(x, jnp.linspace(-2, 2, 32), v))(values, x)


@program("vmap/of dynamic_slice", rows(256, 32), rows(256, drawn=24))
def dynamic_slice(x, at):
    return jax.vmap(lambda x, at: lax.dynamic_slice(x, (at,), (8,)))(x, at)


@program("vmap/of while_loop", rows(1024, drawn="uniform"))
def while_loop(x):
    return jax.vmap(lambda x: lax.while_loop(lambda s: s[0] < 10, lambda s: (s[0] * 1.5 + 0.1, s[1] + 1), (x, 0))[1])(x)


@program("vmap/of grad", rows(256, 16), whole(16, 4))
def gradients(x, w):
    return jax.vmap(jax.grad(lambda x: jnp.tanh(x @ w).sum()))(x)


@program("vmap/of solve", rows(64, 8, 8, drawn="definite"), rows(64, 8))
def solve(a, b):
    return jax.vmap(lambda a, b: jax.scipy.linalg.solve(a, b, assume_a="pos"))(a, b)


@program("vmap/over columns", columns(16, 256))
def over_columns(x):
    return jax.vmap(lambda c: jnp.cumsum(c) / jnp.abs(c).sum(), in_axes=1, out_axes=1)(x)


@program("vmap/of an ODE in scan", rows(256, 4))
def ode(x):
    def one(x):
        return lax.scan(lambda x, _: (x + 0.01 * jnp.sin(jnp.roll(x, 1)), x[0]), x, None, length=20)

    return jax.vmap(one)(x)
