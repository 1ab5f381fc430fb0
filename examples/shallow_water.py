"""A jet in a shallow ocean, and the gradient of its waves with respect to the initial state, on any number of ranks.

    python examples/shallow_water.py                                  one process
    mpirun -n 6 python examples/shallow_water.py --frames frames      a grid of 3 x 2 ranks, and a film
    mpirun -n 4 python examples/shallow_water.py --gradient           reverse mode, through the messages

It solves the shallow-water equations in vector-invariant form, with friction, on an Arakawa C grid, by the second-order
method of Adams and Bashforth:

    dh/dt = - div((H + h) velocity)
    du/dt = + q U_y - dB/dx + nu lap u            q: potential vorticity, (f + dv/dx - du/dy) / (H + h)
    dv/dt = - q U_x - dB/dy + nu lap v            B: g h + (u^2 + v^2) / 2;  U: fluxes (H + h) velocity

The ocean is a channel: periodic from west to east, with walls in the south and the north. Each rank has a block of it,
with a halo of one cell from its neighbours. The exchange of the halo and the arithmetic are one compiled program, which
makes many steps in a call. The fields are the same on any number of ranks.
"""

import argparse
import functools
import importlib.util
import sys
import time
from pathlib import Path

import numpy as np
from mpi4py import MPI

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import lax, mpi

GRAVITY = 9.81  # m/s2
DEPTH = 100.0  # m, at rest
CELL = 5e3  # m, between neighbours in both directions
CORIOLIS = 1e-4  # 1/s, in the middle of the channel
BETA = 2e-11  # 1/(m s), the increase of the Coriolis parameter northwards
VISCOSITY = 200.0  # m2/s
STEP = 20.0  # s; waves at sqrt(GRAVITY * DEPTH) = 31 m/s travel an eighth of a cell in a step
NEW, OLD = 1.6, -0.6  # weights of Adams-Bashforth; with 1.5 and -0.5, the shortest waves of the grid would grow
JET = 10.0  # m/s
DAY = 86400.0


# ---------------------------------------------------------------------------------------------------- grid


class Grid:
    """The channel, and this rank's block of it.

    shape: rows (northwards) and columns (eastwards) of the channel. cart: the grid of ranks. block: this rank's rows
    and columns, as slices of the channel. coriolis: the Coriolis parameter, float[rows + 1, 1], at the southern border
    of the block and at the northern borders of its rows. openness: of the same shape, 0 at a wall and 1 elsewhere.
    """

    def __init__(self, shape, cart):
        if any(ranks > cells for ranks, cells in zip(cart.dims, shape, strict=True)):
            raise ValueError(
                f"{shape[0]} x {shape[1]} cells are too few for {cart.dims[0]} x {cart.dims[1]} ranks: "
                "each rank needs at least one cell. Start fewer ranks, or use more cells."
            )
        self.shape, self.cart = shape, cart
        self.block = mpi.block_slice(shape, cart.dims, cart.coords)
        self.coriolis, self.openness = borders(self.block[0], shape[0])

    def gather(self, mine):
        """The field of the whole channel from the blocks of all ranks, on rank 0 (None on other ranks)."""
        blocks = self.cart.gather((self.block, np.asarray(mine)))
        if blocks is None:
            return None
        whole = np.empty(self.shape, blocks[0][1].dtype)
        for block, values in blocks:
            whole[block] = values
        return whole

    def total(self, mine):
        """The sum of a field over the whole channel, in float64."""
        return self.cart.allreduce(float(np.asarray(mine, np.float64).sum()))


def make_grid(shape, comm=None):
    """A grid of all ranks of `comm` (by default of the job). The channel is divided as evenly as its cells allow."""
    return Grid(tuple(shape), mpi.create_cart(2, periods=(False, True), comm=comm))


def borders(rows, n):
    """Coriolis parameter and openness at the borders of `rows`, a slice of `n` rows, from south to north."""
    border = np.arange(rows.start, rows.stop + 1)[:, None]
    coriolis = CORIOLIS + BETA * CELL * (border - n / 2)
    openness = (border > 0) & (border < n)
    return [np.asarray(x, jnp.zeros(()).dtype) for x in (coriolis, openness)]


# --------------------------------------------------------------------------------------------------- model


def tendency(state, coriolis, openness):
    """Time derivatives of height and velocities in the block.

    state: float[3, rows + 2, columns + 2], with the halo: the height (its difference from DEPTH) at the centres of the
    cells, the eastward velocity on their eastern faces, and the northward velocity on their northern faces.
    Returns float[3, rows, columns].
    """
    h, u, v = state
    # Fluxes through the eastern and northern faces, potential vorticity at the north-eastern corners, and the Bernoulli
    # function in the cells. Each array begins with the block, or one row or column before it, as the block needs it.
    east = (DEPTH + 0.5 * (h[:, :-1] + h[:, 1:])) * u[:, :-1]
    north = (DEPTH + 0.5 * (h[:-1] + h[1:])) * v[:-1]
    vorticity = (v[:-1, 1:] - v[:-1, :-1] - u[1:, :-1] + u[:-1, :-1]) * (1 / CELL)
    corner_depth = DEPTH + 0.25 * (h[:-1, :-1] + h[:-1, 1:] + h[1:, :-1] + h[1:, 1:])
    q = (coriolis + vorticity) / corner_depth
    squares = u[1:, 1:] ** 2 + u[1:, :-1] ** 2 + v[1:, 1:] ** 2 + v[:-1, 1:] ** 2
    bernoulli = GRAVITY * h[1:, 1:] + 0.25 * squares
    # Friction conserves momentum between cells. At the walls there is no friction: water slides along them.
    shear = (u[1:, 1:-1] - u[:-1, 1:-1]) * openness
    u_friction = u[1:-1, 2:] - 2 * u[1:-1, 1:-1] + u[1:-1, :-2] + shear[1:] - shear[:-1]
    v_friction = v[1:-1, 2:] + v[1:-1, :-2] + v[2:, 1:-1] + v[:-2, 1:-1] - 4 * v[1:-1, 1:-1]

    inflow = east[1:-1, :-1] - east[1:-1, 1:] + north[:-1, 1:-1] - north[1:, 1:-1]
    flux_y = north[:, 1:-1] + north[:, 2:]
    flux_x = east[1:-1] + east[2:]
    du = 0.25 * (q[1:, 1:] * flux_y[1:] + q[:-1, 1:] * flux_y[:-1])
    dv = -0.25 * (q[1:, 1:] * flux_x[:, 1:] + q[1:, :-1] * flux_x[:, :-1])
    du += (bernoulli[:-1, :-1] - bernoulli[:-1, 1:]) * (1 / CELL) + u_friction * (VISCOSITY / CELL**2)
    dv += (bernoulli[:-1, :-1] - bernoulli[1:, :-1]) * (1 / CELL) + v_friction * (VISCOSITY / CELL**2)
    return jnp.stack([inflow * (1 / CELL), du, dv * openness[1:]])


def make_step(grid):
    """(state, previous tendency) -> (next state, its tendency). The halo of a state is from the previous step."""

    def step(carry):
        state, before = carry
        state = mpi.halo_exchange(state, grid.cart, axes=(1, 2))
        now = tendency(state, grid.coriolis, grid.openness)
        state = state.at[:, 1:-1, 1:-1].add((STEP * NEW) * now + (STEP * OLD) * before)
        return state, now

    return step


def make_run(grid, steps):
    """run(carry): `steps` steps in one call of a program. The carry is donated, so the program updates it in place."""
    step = make_step(grid)

    @functools.partial(jax.jit, donate_argnums=0)
    def run(carry):
        return lax.fori_loop(0, steps, lambda _, carry: step(carry), carry)

    return run


def start(state, grid):
    """The first carry. The previous tendency is the current one, so the first step is an Euler step."""
    exchanged = mpi.halo_exchange(state, grid.cart, axes=(1, 2))
    return state, tendency(exchanged, grid.coriolis, grid.openness)


def initial(grid):
    """The initial state: a jet in balance with the slope of the surface, and a small hill that excites waves."""
    rows, columns = (np.arange(n) for n in grid.shape)
    y, x = (rows[:, None] + 0.5) * CELL, (columns + 0.5) * CELL
    middle, width = 0.5 * grid.shape[0] * CELL, 30e3
    jet = JET / np.cosh((y - middle) / width) ** 2
    slope = -(CORIOLIS + BETA * (y - middle)) / GRAVITY * jet
    balanced = np.cumsum(slope, axis=0) * CELL - 0.5 * slope * CELL
    hill = np.exp(-(((x - 0.25 * x[-1]) / 60e3) ** 2) - ((y - middle) / 30e3) ** 2)
    height = balanced - balanced.mean() + hill
    fields = [np.broadcast_to(field, grid.shape)[grid.block] for field in (height, jet, 0.0)]
    return jnp.pad(jnp.asarray(np.stack(fields), jnp.zeros(()).dtype), ((0, 0), (1, 1), (1, 1)))


def height(state):
    """The heights of the block, without the halo."""
    return state[0, 1:-1, 1:-1]


def vorticity(state, grid):
    """Relative vorticity at the north-eastern corners of the cells of the block; 0 at walls, where water slides."""
    _, u, v = mpi.halo_exchange(state, grid.cart, axes=(1, 2))
    return (v[1:-1, 2:] - v[1:-1, 1:-1] - u[2:, 1:-1] + u[1:-1, 1:-1]) * (1 / CELL) * grid.openness[1:]


# ------------------------------------------------------------------------------------------------ gradient


def make_cost(grid, segments, steps):
    """cost(h): half the sum of the squared heights of the channel after segments * steps steps that begin with `h`.

    `h`: float[rows, columns], this rank's initial heights. The cost is the same on all ranks. The gradient keeps the
    carry at the beginning of each segment. It computes one segment at a time again, and keeps the carries of its steps.
    """
    step = make_step(grid)
    state = initial(grid)

    @jax.checkpoint
    def segment(carry, _):
        return lax.fori_loop(0, steps, lambda _, carry: jax.checkpoint(step)(carry), carry), None

    def cost(h):
        carry = start(state.at[0, 1:-1, 1:-1].set(h), grid)
        (final, _), _ = lax.scan(segment, carry, None, length=segments)
        return 0.5 * mpi.allreduce(jnp.sum(height(final) ** 2), MPI.SUM, comm=grid.cart)

    return cost


def check_gradient(grid, segments=10, steps=20):
    """The derivative of the cost along a random pattern, by reverse mode and by a difference; microseconds per step."""
    h = height(initial(grid))
    pattern = jnp.asarray(np.random.default_rng(0).normal(size=grid.shape)[grid.block], h.dtype)
    cost = make_cost(grid, segments, steps)
    gradient_of = jax.jit(jax.grad(cost)).lower(h).compile()
    begin = time.perf_counter()
    gradient = jax.block_until_ready(gradient_of(h))
    took = time.perf_counter() - begin
    size = 1e-2 if h.dtype == np.float32 else 1e-4
    cost = jax.jit(cost)
    difference = (float(cost(h + size * pattern)) - float(cost(h - size * pattern))) / (2 * size)
    return grid.total(gradient * pattern), difference, took / (segments * steps) * 1e6


# -------------------------------------------------------------------------------------------------- report


def progress_bar(done, total):
    """A progress bar without carriage returns, so that it also works under mpirun and in a log file."""
    if done == 1:
        print("[", end="", file=sys.stderr)
    print("#" * (30 * done // total - 30 * (done - 1) // total), end="", file=sys.stderr, flush=True)
    if done == total:
        print("]", file=sys.stderr, flush=True)


def silent(done, total):
    """The progress bar of all ranks except the first: none."""


def save_picture(height, vorticity, day, path):
    """Draw maps of two fields of the whole channel."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    rows, columns = height.shape
    extent = [0, columns * CELL / 1e3, 0, rows * CELL / 1e3]
    figure, axes = plt.subplots(2, figsize=(7, 7), layout="constrained")
    for ax, field, limit, label in (
        (axes[0], height, 6, "height (m)"), (axes[1], vorticity / CORIOLIS, 1.5, "vorticity / Coriolis parameter"),
    ):  # fmt: skip
        image = ax.imshow(field, origin="lower", extent=extent, cmap="RdBu_r", vmin=-limit, vmax=limit)
        figure.colorbar(image, ax=ax, label=label)
        ax.set(ylabel="km")
    axes[0].set(title=f"day {day:.2f}")
    figure.savefig(path, dpi=100)
    plt.close(figure)


def simulate(grid, calls, steps, progress, frame=None):
    """Run `calls` times `steps` steps. Returns the last state, steps per second, and the relative change of the mass.

    frame(state, number): called after each of the `calls` calls.
    """
    carry = start(initial(grid), grid)
    run = make_run(grid, steps).lower(carry).compile()
    before = grid.total(height(carry[0]))
    spent = 0.0
    for call in range(1, calls + 1):
        begin = time.perf_counter()
        carry = jax.block_until_ready(run(carry))
        spent += time.perf_counter() - begin
        if frame is not None:
            frame(carry[0], call)
        progress(call, calls)
    drift = (grid.total(height(carry[0])) - before) / (DEPTH * grid.shape[0] * grid.shape[1])
    return carry[0], calls * steps / spent, drift


def make_frame(grid, steps, folder):
    """frame(state, number): writes a picture into a folder, on rank 0, after each call of `steps` steps."""

    def frame(state, number):
        fields = grid.gather(height(state)), grid.gather(vorticity(state, grid))
        if grid.cart.rank == 0:
            save_picture(*fields, number * steps * STEP / DAY, folder / f"{number:04d}.png")

    return frame


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, nargs=2, default=(90, 180), metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--days", type=float, default=4.0)
    parser.add_argument("--pictures", type=int, default=30, help="number of calls of the program, and of frames")
    parser.add_argument("--frames", type=Path, metavar="FOLDER", help="draw the fields after each call")
    parser.add_argument("--gradient", action="store_true", help="gradient with respect to the first heights")
    parser.add_argument("--double", action="store_true", help="compute in float64")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the last state to this .npy file")
    return parser.parse_args()


def main():
    args = arguments()
    if args.frames and importlib.util.find_spec("matplotlib") is None:
        sys.exit("--frames needs matplotlib, which is not installed. Run: pip install matplotlib")
    jax.config.update("jax_enable_x64", args.double)
    grid = make_grid(args.cells)
    first = grid.cart.rank == 0
    if first:
        print(f"{grid.shape[0]} x {grid.shape[1]} cells on {grid.cart.dims[0]} x {grid.cart.dims[1]} ranks", flush=True)
    if args.gradient:
        reverse, difference, microseconds = check_gradient(grid)
        if first:
            print(f"derivative by reverse mode {reverse:.7g}, by finite differences {difference:.7g}")
            print(f"gradient: {microseconds:,.0f} microseconds per step")
        return
    steps = max(1, round(args.days * DAY / STEP / args.pictures))
    if args.frames:
        args.frames.mkdir(parents=True, exist_ok=True)
    frame = make_frame(grid, steps, args.frames) if args.frames else None
    state, speed, drift = simulate(grid, args.pictures, steps, progress_bar if first else silent, frame)
    fields = [grid.gather(field[1:-1, 1:-1]) for field in state]
    if first:
        print(f"{args.pictures * steps:,} steps, {speed:,.0f} per second; relative change of the mass: {drift:.1e}")
        print(f"height between {fields[0].min():.2f} and {fields[0].max():.2f} m")
        if args.save:
            np.save(args.save, np.stack(fields))
        if args.frames:
            print(f"frames: {args.frames}")


if __name__ == "__main__":
    main()
