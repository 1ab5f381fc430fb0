"""`examples/shallow_water.py` and `examples/cg.py`, on one rank and on two; on JAX with mpi4jax's messages."""

import numpy as np

from bench.case import case

CELLS, STEPS = (90, 180), 100
PLATE, ITERATIONS = (256, 256), 100


def ocean(backend):
    """A hundred steps a call; the state is given from call to call."""
    model = backend.example("shallow_water")
    grid = model.make_grid(CELLS)
    run = model.make_run(grid, STEPS)
    carry = model.start(model.initial(grid), grid)

    def call():
        nonlocal carry
        carry = run(carry)
        return carry[0]

    return call


def plate(backend):
    """A hundred iterations, not ended by the tolerance, in float32."""
    cg = backend.example("cg")
    grid = cg.make_grid(PLATE)
    source, log_k, _ = (backend.array(np.asarray(x, np.float32)) for x in cg.problem(grid))
    solve = backend.jax.jit(cg.make_solve(grid, tolerance=0.0, limit=ITERATIONS))
    return lambda: solve(source, log_k)[0]


@case("examples/shallow water 90x180, 100 steps", ratio=2)
def ocean_alone(backend):
    return ocean(backend)


@case("examples/shallow water 90x180, gradient of 100 steps", ratio=2)
def ocean_gradient(backend):
    model = backend.example("shallow_water")
    grid = model.make_grid(CELLS)
    gradient = backend.jax.jit(backend.jax.grad(model.make_cost(grid, STEPS // 10, 10)))
    h = model.height(model.initial(grid))
    return lambda: gradient(h)


@case("examples/conjugate gradients 256x256, 100 iterations", ratio=1)
def plate_alone(backend):
    return plate(backend)


@case("ranks/shallow water 90x180, 100 steps", ranks=2, ratio=5)
def ocean_between_ranks(backend):
    return ocean(backend)


@case("ranks/conjugate gradients 256x256, 100 iterations", ranks=2, ratio=2)
def plate_between_ranks(backend):
    return plate(backend)
