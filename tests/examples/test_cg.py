"""The example of conjugate gradients: a direct solver's solution on any number of ranks, and its derivatives."""

import re
import subprocess
import sys

import numpy as np
import pytest
from examples.programs import load_example, path_of
from launching import mpirun, starts_jobs
from mpi4py import MPI

import mpijax as jax

SHAPE = (17, 14)  # which 2 and 4 do not divide


@pytest.fixture
def cg():
    with jax.enable_x64(True):
        yield load_example("cg")


def direct(cg, shape):
    """Source, log k and temperature of all cells, by SciPy's direct solver."""
    import scipy.sparse.linalg

    source, log_k, _ = cg.problem(cg.make_grid(shape, MPI.COMM_SELF))
    rows, columns = shape
    k = np.pad(np.exp(log_k), 1, mode="edge")
    number = np.arange(rows * columns).reshape(shape)
    at = np.pad(number, 1, constant_values=-1)
    inner = np.s_[1:-1, 1:-1]
    system = scipy.sparse.lil_array((rows * columns, rows * columns))
    for axis, weight in ((0, rows / columns), (1, columns / rows)):
        for way in (1, -1):
            face = weight * 0.5 * (k + np.roll(k, way, axis))[inner].ravel()
            beside = np.roll(at, way, axis)[inner].ravel()
            system[number.ravel(), number.ravel()] += face
            system[number.ravel()[beside >= 0], beside[beside >= 0]] -= face[beside >= 0]
    u = scipy.sparse.linalg.spsolve(system.tocsr(), source.ravel() / (rows * columns))
    return source, log_k, u.reshape(shape)


@pytest.mark.mpi
def test_solution_is_that_of_a_direct_solver_on_any_number_of_ranks(cg):
    grid = cg.make_grid(SHAPE)
    source, log_k, u = (field[grid.block] for field in direct(cg, SHAPE))
    mine_source, mine_log_k, _ = cg.problem(grid)
    np.testing.assert_array_equal(mine_source, source)
    np.testing.assert_array_equal(mine_log_k, log_k)
    got, count = jax.jit(cg.make_solve(grid))(source, log_k)
    np.testing.assert_allclose(got, u, rtol=1e-8)
    assert 20 < count < 2 * np.prod(SHAPE)
    assert cg.residual(grid, got, source, log_k) < 2e-10


@pytest.mark.mpi
def test_gradients_are_those_of_differences(cg):
    grid = cg.make_grid(SHAPE)
    warmth = cg.make_warmth(grid, cg.make_solve(grid, tolerance=1e-13))
    source, log_k, _ = cg.problem(grid)
    gradients, _ = jax.jit(jax.grad(warmth, argnums=(0, 1), has_aux=True))(source, log_k)
    for implicit, difference in cg.compare(grid, jax.jit(warmth), gradients, source, log_k, size=1e-4):
        np.testing.assert_allclose(implicit, difference, rtol=1e-6)
        assert abs(implicit) > 1e-4


@pytest.mark.mpi
def test_operator_is_symmetric_and_positive(cg):
    grid = cg.make_grid(SHAPE)
    operator = cg.make_operator(grid, cg.problem(grid)[1])
    a, b = (np.random.default_rng(i).normal(size=SHAPE)[grid.block] for i in range(2))
    np.testing.assert_allclose(grid.dot(a, operator(b)), grid.dot(b, operator(a)), rtol=1e-12)
    np.testing.assert_allclose(jax.linear_transpose(operator, a)(b)[0], operator(b), rtol=1e-12)
    assert grid.dot(a, operator(a)) > 0


def test_it_stops_at_the_limit(cg):
    grid = cg.make_grid(SHAPE, MPI.COMM_SELF)
    source, log_k, _ = cg.problem(grid)
    assert cg.make_solve(grid, limit=5)(source, log_k)[1] == 5


def test_more_ranks_than_cells_are_refused(cg):
    with pytest.raises(ValueError, match="0 x 5 cells are too few for 1 x 1 ranks"):
        cg.make_grid((0, 5), MPI.COMM_SELF)


class TestScript:
    pytestmark = starts_jobs

    @pytest.mark.parametrize(("ranks", "grid"), [(2, "2 x 1"), pytest.param(4, "2 x 2", marks=pytest.mark.slow)])
    def test_ranks_have_the_solution_of_a_direct_solver_and_draw_it(self, cg, tmp_path, ranks, grid):
        pytest.importorskip("matplotlib")
        field, picture = tmp_path / "u.npy", tmp_path / "cg.png"
        command = [*mpirun(ranks), sys.executable, path_of("cg"), "--cells", *map(str, SHAPE), "--save", field]
        done = subprocess.run([*command, "--out", picture], capture_output=True, text=True, timeout=250, check=True)
        assert f"17 x 14 cells on {grid} ranks" in done.stdout
        assert done.stderr.count("#") == 60
        np.testing.assert_allclose(np.load(field), direct(cg, SHAPE)[2], rtol=1e-8)
        pairs = re.findall(r"derivative with respect to .*: (.*), by finite differences: (.*)", done.stdout)
        np.testing.assert_allclose(*np.array(pairs, float).T, rtol=1e-4)
        assert picture.read_bytes().startswith(b"\x89PNG")

    def test_it_starts_without_a_launcher(self):
        command = [sys.executable, path_of("cg"), "--cells", "12", "12", "--tolerance", "1e-8"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
        assert re.search(r"\d+ iterations, residual \d\.\de-09, .* microseconds each", done.stdout)
