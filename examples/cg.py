"""Temperature in a plate of uneven material: conjugate gradients on any number of ranks, and their derivatives.

    python examples/cg.py                               one process
    mpirun -n 4 python examples/cg.py --cells 512 512   a grid of 2 x 2 ranks

The temperature u solves  - div(k grad u) = s  in the unit square, with u = 0 at its border. The conductivity k and the
source s are given in each cell. Each rank has a block of the cells. The operator exchanges the cells next to the block
with the neighbours, and the scalar products are sums over all ranks. All of that is one compiled loop.

The temperature of a sensor depends on the source and on the conductivity. `lax.custom_linear_solve` differentiates the
solution by the equation that it solves: a gradient takes one more solution with the same loop, and keeps no iteration.
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

# ---------------------------------------------------------------------------------------------------- grid


class Grid:
    """The cells of the plate, of shape (rows, columns), and this rank's block of them."""

    def __init__(self, shape, cart):
        if any(ranks > cells for ranks, cells in zip(cart.dims, shape, strict=True)):
            raise ValueError(
                f"{shape[0]} x {shape[1]} cells are too few for {cart.dims[0]} x {cart.dims[1]} ranks: "
                "each rank needs at least one cell. Start fewer ranks, or use more cells."
            )
        self.shape, self.cart = shape, cart
        self.block = mpi.block_slice(shape, cart.dims, cart.coords)

    def dot(self, a, b):
        """The scalar product over all cells. Communicates one number."""
        return mpi.allreduce(jnp.sum(a * b), MPI.SUM, comm=self.cart)

    def with_neighbours(self, u, **border):
        """The block with one more cell on each side: a neighbour's, or at the border of the plate that of `jnp.pad`."""
        return mpi.halo_exchange(jnp.pad(u, 1, **border), self.cart)

    def gather(self, mine):
        """The field of the whole plate from the blocks of all ranks, on rank 0 (None on other ranks)."""
        blocks = self.cart.gather((self.block, np.asarray(mine)))
        if blocks is None:
            return None
        whole = np.empty(self.shape, blocks[0][1].dtype)
        for block, values in blocks:
            whole[block] = values
        return whole


def make_grid(shape, comm=None):
    """A grid of all ranks of `comm` (by default of the job). The plate is divided as evenly as its cells allow."""
    return Grid(tuple(shape), mpi.create_cart(2, comm=comm))


# ------------------------------------------------------------------------------------------------ equation


def make_operator(grid, log_k):
    """u -> - div(k grad u), times the area of a cell. log_k: log of the conductivity in the cells of the block."""
    k = grid.with_neighbours(jnp.exp(log_k), mode="edge")
    columns, rows = grid.shape[1], grid.shape[0]
    # For each face: the mean conductivity of its two cells, times its length, divided by the distance of their centres.
    east = (0.5 * columns / rows) * (k[1:-1, :-1] + k[1:-1, 1:])
    north = (0.5 * rows / columns) * (k[:-1, 1:-1] + k[1:, 1:-1])
    diagonal = east[:, :-1] + east[:, 1:] + north[:-1] + north[1:]

    def operator(u):
        around = grid.with_neighbours(u)
        beside = east[:, :-1] * around[1:-1, :-2] + east[:, 1:] * around[1:-1, 2:]
        return diagonal * u - beside - north[:-1] * around[:-2, 1:-1] - north[1:] * around[2:, 1:-1]

    return operator


def conjugate_gradients(operator, b, dot, tolerance, limit, show=None):
    """Solve a system with a symmetric, positive definite operator: (solution, number of iterations).

    It ends when the norm of the residual is `tolerance` times the norm of `b`, or after `limit` iterations. show(share)
    is called every 20 iterations; share is the progress, from 0 to 1, on a logarithmic scale of the residual.
    """
    first = dot(b, b)
    enough = first * tolerance**2

    def more(state):
        _, _, _, rr, count = state
        return (rr > enough) & (count < limit)

    def iteration(state):
        x, r, p, rr, count = state
        if show is not None:
            share = jnp.log(rr / first) / (2 * np.log(tolerance))
            lax.cond(count % 20 == 0, lambda: jax.debug.callback(show, share), lambda: None)
        along = operator(p)
        step = rr / dot(p, along)
        r = r - step * along
        new = dot(r, r)
        return x + step * p, r, r + (new / rr) * p, new, count + 1

    x, _, _, _, count = lax.while_loop(more, iteration, (jnp.zeros_like(b), b, b, first, 0))
    return x, count


def make_solve(grid, tolerance=1e-10, limit=100_000, show=None):
    """solve(source, log_k) -> (temperature, number of iterations), differentiable in both arguments."""

    def solve(source, log_k):
        inner = functools.partial(conjugate_gradients, dot=grid.dot, tolerance=tolerance, limit=limit, show=show)
        b = source * (1 / (grid.shape[0] * grid.shape[1]))
        return lax.custom_linear_solve(make_operator(grid, log_k), b, inner, symmetric=True, has_aux=True)

    return solve


def make_warmth(grid, solve):
    """warmth(source, log_k) -> (mean temperature of the sensor, (temperature, number of iterations))."""
    sensor = jnp.asarray(problem(grid)[2])
    area = grid.cart.allreduce(float(sensor.sum()))

    def warmth(source, log_k):
        u, count = solve(source, log_k)
        return grid.dot(sensor, u) * (1 / area), (u, count)

    return warmth


def problem(grid, dtype=None):
    """In the cells of the block: a source in one corner, log k with an insulating ring, and a sensor in that ring."""
    rows, columns = grid.shape
    y, x = ((np.arange(rows) + 0.5) / rows)[:, None], (np.arange(columns) + 0.5) / columns
    source = 100 * np.exp(-((x - 0.25) ** 2 + (y - 0.3) ** 2) / 0.01)
    radius = np.hypot(x - 0.65, y - 0.6)
    log_k = 0.5 * np.sin(7 * x) * np.cos(9 * y) - 3.0 * np.exp(-(((radius - 0.2) / 0.03) ** 2))
    sensor = np.exp(-((radius / 0.05) ** 2))
    dtype = dtype or jnp.zeros(()).dtype
    return [np.broadcast_to(field, grid.shape)[grid.block].astype(dtype) for field in (source, log_k, sensor)]


def residual(grid, u, source, log_k):
    """The norm of the residual, divided by the norm of the source."""
    b = source * (1 / (grid.shape[0] * grid.shape[1]))
    left = b - make_operator(grid, log_k)(u)
    return jnp.sqrt(grid.dot(left, left) / grid.dot(b, b))


# ------------------------------------------------------------------------------------------------ gradient


def compare(grid, warmth, gradients, source, log_k, size=1e-3):
    """Derivatives along a random pattern, by the gradient and by a central difference: of the source, then log k."""
    fields = [source, log_k]
    results = []
    for i, gradient in enumerate(gradients):
        pattern = np.random.default_rng(i).normal(size=grid.shape)[grid.block].astype(source.dtype)
        ends = []
        for sign in (1, -1):
            moved = [f + sign * size * pattern if j == i else f for j, f in enumerate(fields)]
            ends.append(float(warmth(*moved)[0]))
        results.append((float(grid.dot(gradient, pattern)), (ends[0] - ends[1]) / (2 * size)))
    return results


# -------------------------------------------------------------------------------------------------- report


class ProgressBar:
    """A progress bar without carriage returns, so that it also works under mpirun and in a log file."""

    def __init__(self):
        self.drawn = 0

    def __call__(self, share):
        now = int(30 * max(float(share), 0.0))
        if now > self.drawn:
            print("#" * (now - self.drawn), end="", file=sys.stderr, flush=True)
            self.drawn = now

    def close(self):
        """Draw the rest of the bar and end its line; the next solution begins a new bar."""
        print("#" * (30 - self.drawn), file=sys.stderr, flush=True)
        self.drawn = 0


def save_picture(fields, path):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(fields), figsize=(4.2 * len(fields), 3.6), layout="constrained")
    for ax, (title, field) in zip(axes, fields.items(), strict=True):
        image = ax.imshow(field, origin="lower", extent=[0, 1, 0, 1], aspect="auto", cmap="magma")
        figure.colorbar(image, ax=ax)
        ax.set(title=title)
    figure.savefig(path, dpi=120)


def timed(compiled, *args):
    """The result, and the seconds that the call took."""
    begin = time.perf_counter()
    result = jax.block_until_ready(compiled(*args))
    return result, time.perf_counter() - begin


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cells", type=int, nargs=2, default=(256, 256), metavar=("ROWS", "COLUMNS"))
    parser.add_argument("--tolerance", type=float, default=1e-10, help="residual at which the iteration stops")
    parser.add_argument("--out", type=Path, metavar="FILE", help="draw the temperature and the gradients")
    parser.add_argument("--save", type=Path, metavar="FILE", help="write the temperature to this .npy file")
    return parser.parse_args()


def main():
    args = arguments()
    if args.out and importlib.util.find_spec("matplotlib") is None:
        sys.exit("--out needs matplotlib, which is not installed. Run: pip install matplotlib")
    jax.config.update("jax_enable_x64", True)
    grid = make_grid(args.cells)
    first = grid.cart.rank == 0
    bar = ProgressBar() if first else None
    source, log_k, _ = problem(grid)
    if first:
        print(f"{grid.shape[0]} x {grid.shape[1]} cells on {grid.cart.dims[0]} x {grid.cart.dims[1]} ranks", flush=True)

    warmth = make_warmth(grid, make_solve(grid, args.tolerance, show=bar))
    forward = jax.jit(warmth).lower(source, log_k).compile()
    (warm, (u, count)), took = timed(forward, source, log_k)
    left = residual(grid, u, source, log_k)
    if first:
        bar.close()
        print(f"{count} iterations, residual {left:.1e}, {took:.3f} s, {took / count * 1e6:.1f} microseconds each")
        print(f"the sensor's temperature is {warm:.8f}", flush=True)

    gradient_of = jax.jit(jax.grad(warmth, argnums=(0, 1), has_aux=True)).lower(source, log_k).compile()
    (gradients, _), took = timed(gradient_of, source, log_k)
    rows = compare(grid, forward, gradients, source, log_k)
    fields = {"temperature": u, "warmth by source": gradients[0], "warmth by log k": gradients[1]}
    fields = {name: grid.gather(field) for name, field in fields.items()}
    if first:
        bar.close()
        print(f"gradient with both solutions: {took:.3f} s")
        for name, (implicit, difference) in zip(("source", "log k"), rows, strict=True):
            print(f"derivative with respect to {name}: {implicit:.8g}, by finite differences: {difference:.8g}")
        if args.save:
            np.save(args.save, fields["temperature"])
        if args.out:
            save_picture(fields, args.out)
            print(f"picture: {args.out}")


if __name__ == "__main__":
    main()
