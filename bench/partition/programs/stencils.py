"""Differences of neighbours, written in several ways."""

from bench.partition.modules import jax, jnp, lax
from bench.partition.program import grid, program, rows, whole

ROW = 4 * 64  # bytes


def both_halos(n: int) -> float:
    """A row to each neighbour: what the ranks in the middle send."""
    return (1 if n == 2 else 2) * ROW


@program("stencil/differences by slices", rows(256, 64), least=lambda n: ROW)
def differences(x):
    return x[1:] - x[:-1]


@program("stencil/diff", rows(256, 64), least=lambda n: ROW)
def diff(x):
    return jnp.diff(x, axis=0)


@program("stencil/by roll", rows(256, 64), least=both_halos)
def by_roll(x):
    return jnp.roll(x, 1, axis=0) + jnp.roll(x, -1, axis=0) - 2 * x


@program("stencil/by roll along", rows(256, 64))
def by_roll_along(x):
    return jnp.roll(x, 1, axis=1) - x


@program("stencil/by pad", rows(256, 64), least=both_halos)
def by_pad(x):
    p = jnp.pad(x, ((1, 1), (0, 0)))
    return p[2:] + p[:-2] - 2 * x


@program("stencil/by pad, wrapped", rows(256, 64), least=both_halos)
def by_wrapped_pad(x):
    p = jnp.pad(x, 1, mode="wrap")
    return p[2:, 1:-1] + p[:-2, 1:-1] + p[1:-1, 2:] + p[1:-1, :-2] - 4 * x


def heat(u):
    near = u[2:, 1:-1] + u[:-2, 1:-1] + u[1:-1, 2:] + u[1:-1, :-2]
    return u.at[1:-1, 1:-1].add(0.1 * (near - 4 * u[1:-1, 1:-1]))


@program("stencil/heat by .at", rows(256, 64), least=both_halos)
def heat_rows(u):
    return heat(u)


@program("stencil/heat, 2-D mesh", grid(128, 128), least=lambda n: {2: 128, 4: 2 * 64}.get(n, 2 * 128) * 4)
def heat_grid(u):
    return heat(u)


@program("stencil/heat in fori_loop", rows(256, 64), least=lambda n: 10 * both_halos(n))
def heat_fori(u):
    return lax.fori_loop(0, 10, lambda _, u: heat(u), u)


@program("stencil/heat in scan", rows(256, 64), least=lambda n: 10 * both_halos(n))
def heat_scan(u):
    return lax.scan(lambda u, _: (heat(u), u.sum()), u, None, length=10)


@program("stencil/heat in while_loop", rows(256, 64), least=both_halos)
def heat_while(u):
    def change(state):
        u, step, size = state
        new = heat(u)
        return new, step + 1, jnp.abs(new - u).max()

    return lax.while_loop(lambda s: (s[2] > 1e-3) & (s[1] < 20), change, (u, 0, jnp.float32(1)))[0]


@program("stencil/wave by roll in fori_loop", grid(128, 128), grid(128, 128))
def wave(u, before):
    def step(_, state):
        u, before = state
        near = sum(jnp.roll(u, shift, axis) for axis in (0, 1) for shift in (1, -1))
        return 2 * u - before + 0.1 * (near - 4 * u), u

    return lax.fori_loop(0, 5, step, (u, before))


@program("stencil/advection, upwind", rows(256, 64), least=lambda n: ROW)
def advection(u):
    return u - 0.5 * (u - jnp.roll(u, 1, axis=0))


@program("stencil/set borders", rows(256, 64))
def borders(u):
    return u.at[0].set(0.0).at[-1].set(1.0).at[:, 0].set(2.0)


@program("stencil/convolve", rows(4096), whole(5), least=lambda n: (1 if n == 2 else 2) * 2 * 4)
def convolve(x, w):
    return jnp.convolve(x, w, mode="same")


@program("stencil/gradient of heat", rows(256, 64), least=lambda n: 2 * both_halos(n))
def gradient(u):
    return jax.grad(lambda u: (heat(u) ** 2).sum())(u)
