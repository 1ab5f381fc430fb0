"""The shallow-water example: conservation laws, waves, the same bits on any number of ranks, and its gradient."""

import os
import subprocess
import sys

import numpy as np
import pytest
from examples.programs import load_example, path_of
from launching import mpirun, starts_jobs
from mpi4py import MPI

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import mpi

SIZE = jax.process_count()
SHAPE = (13, 17)  # which 2, 4 and 6 do not divide


@pytest.fixture
def model():
    return load_example("shallow_water")


@pytest.fixture
def double():
    with jax.enable_x64(True):
        yield


def stepped(model, grid, steps):
    """The block of the fields after some steps, without the halo."""
    carry = model.start(model.initial(grid), grid)
    return np.asarray(model.make_run(grid, steps)(carry)[0])[:, 1:-1, 1:-1]


@pytest.mark.mpi
@pytest.mark.skipif(SIZE == 1, reason="compares several ranks with one")
@pytest.mark.parametrize("x64", [False, True], ids=["float32", "float64"])
def test_fields_have_the_same_bits_as_on_one_rank(model, x64):
    with jax.enable_x64(x64):
        grid, whole = model.make_grid(SHAPE), model.make_grid(SHAPE, MPI.COMM_SELF)
        mine = stepped(model, grid, 12)
        assert mine.dtype == (np.float64 if x64 else np.float32)
        np.testing.assert_array_equal(mine, stepped(model, whole, 12)[:, *grid.block])
        assert np.ptp(mine[0]) > 0


@pytest.mark.mpi
@pytest.mark.parametrize(("x64", "rounding"), [(False, 1e-8), (True, 1e-16)], ids=["float32", "float64"])
def test_mass_is_conserved_to_rounding(model, x64, rounding):
    with jax.enable_x64(x64):
        state, speed, drift = model.simulate(model.make_grid(SHAPE), 2, 10, model.silent)
    assert abs(drift) < rounding and speed > 0
    assert state.dtype == (np.float64 if x64 else np.float32)


@pytest.mark.mpi
@pytest.mark.two_ranks  # tests/mpi/test_overlap.py has gradients of halos on four
def test_gradient_is_that_of_differences(model, double):
    reverse, difference, _ = model.check_gradient(model.make_grid(SHAPE), segments=2, steps=3)
    np.testing.assert_allclose(reverse, difference, rtol=1e-7)
    assert abs(reverse) > 1e-3


def test_energy_is_conserved_without_friction(model, double, monkeypatch):
    """The tendency of sum(g h^2 + (H + h) (u^2 + v^2)) / 2, of any fields, is 0."""
    monkeypatch.setattr(model, "VISCOSITY", 0.0)
    grid = model.make_grid(SHAPE, MPI.COMM_SELF)
    state = np.random.default_rng(0).normal(size=(3, SHAPE[0] + 2, SHAPE[1] + 2))
    state[2, [0, -2]] = 0  # no flow through the walls

    def exchanged(state):
        return mpi.halo_exchange(state, grid.cart, axes=(1, 2))

    def energy(state):
        h, u, v = exchanged(state)
        depth = model.DEPTH + h
        inner = np.s_[1:-1, 1:-1]
        east = 0.5 * (depth[1:-1, 1:-1] + depth[1:-1, 2:])
        north = 0.5 * (depth[1:-1, 1:-1] + depth[2:, 1:-1])
        return 0.5 * jnp.sum(model.GRAVITY * h[inner] ** 2 + east * u[inner] ** 2 + north * v[inner] ** 2)

    change = np.zeros_like(state)
    change[:, 1:-1, 1:-1] = model.tendency(exchanged(state), grid.coriolis, grid.openness)
    _, lost = jax.jvp(energy, (state,), (change,))
    kept = jax.jvp(energy, (state,), (abs(change),))[1]
    assert abs(lost) < 1e-12 * abs(kept)


def test_friction_takes_energy_and_no_momentum(model, double, monkeypatch):
    grid = model.make_grid(SHAPE, MPI.COMM_SELF)
    rng = np.random.default_rng(0)
    state = np.zeros((3, SHAPE[0] + 2, SHAPE[1] + 2))
    state[1] = rng.normal(size=state[1].shape)
    state = mpi.halo_exchange(state, grid.cart, axes=(1, 2))
    with_friction = np.asarray(model.tendency(state, grid.coriolis, grid.openness))
    monkeypatch.setattr(model, "VISCOSITY", 0.0)
    friction = (with_friction - np.asarray(model.tendency(state, grid.coriolis, grid.openness)))[1]
    assert abs(friction.sum()) < 1e-12 * abs(friction).sum()
    assert (friction * np.asarray(state)[1, 1:-1, 1:-1]).sum() < 0


def test_a_small_wave_has_the_speed_of_shallow_water(model, double, monkeypatch):
    """Without rotation, h = a cos(k x) cos(c k t): after half a period the wave stands upside down."""
    monkeypatch.setattr(model, "CORIOLIS", 0.0)
    monkeypatch.setattr(model, "BETA", 0.0)
    monkeypatch.setattr(model, "VISCOSITY", 0.0)
    columns = 64
    grid = model.make_grid((3, columns), MPI.COMM_SELF)
    wave = 1e-4 * np.cos(2 * np.pi * (np.arange(columns) + 0.5) / columns)
    state = np.zeros((3, 5, columns + 2))
    state[0, 1:-1, 1:-1] = wave
    half = 0.5 * columns * model.CELL / np.sqrt(model.GRAVITY * model.DEPTH) / model.STEP
    run = model.make_run(grid, round(half))
    final = np.asarray(run(model.start(jnp.asarray(state), grid))[0])[0, 1:-1, 1:-1]
    np.testing.assert_allclose(final, np.broadcast_to(-wave, final.shape), atol=0.03e-4)


def test_more_ranks_than_cells_are_refused(model):
    with pytest.raises(ValueError, match="0 x 5 cells are too few for 1 x 1 ranks"):
        model.make_grid((0, 5), MPI.COMM_SELF)


class TestScript:
    pytestmark = starts_jobs

    @pytest.mark.slow  # by default the tests above run its functions, and test_cg.py draws on ranks
    @pytest.mark.parametrize(("ranks", "grid"), [(2, "2 x 1"), (6, "3 x 2")])
    def test_ranks_have_the_fields_of_one_and_draw_them(self, model, tmp_path, ranks, grid):
        pytest.importorskip("matplotlib")
        fields, frames = tmp_path / "fields.npy", tmp_path / "frames"
        options = ["--cells", *map(str, SHAPE), "--days", "0.004", "--pictures", "2", "--save", fields, "--frames", frames]
        command = [*mpirun(ranks), sys.executable, path_of("shallow_water"), *options]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
        assert f"13 x 17 cells on {grid} ranks" in done.stdout and "18 steps" in done.stdout
        assert "#" * 30 in done.stderr
        whole = model.make_grid(SHAPE, MPI.COMM_SELF)
        np.testing.assert_array_equal(np.load(fields), stepped(model, whole, 18))
        assert [f.read_bytes()[:4] for f in sorted(frames.iterdir())] == [b"\x89PNG"] * 2

    @pytest.mark.slow
    def test_without_a_launcher_it_checks_its_gradient(self):
        command = [sys.executable, path_of("shallow_water"), "--cells", "8", "9", "--gradient", "--double"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=200, check=True)
        words = done.stdout.split("derivative by reverse mode ")[1].split()
        assert words[1:4] == ["by", "finite", "differences"]
        np.testing.assert_allclose(float(words[0].rstrip(",")), float(words[4]), rtol=1e-5)

    def test_without_matplotlib_it_says_so(self, tmp_path):
        (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['matplotlib'] = None\n")
        command = [sys.executable, path_of("shallow_water"), "--frames", tmp_path / "frames"]
        env = os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])}
        done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=env)
        assert done.returncode == 1 and "--frames needs matplotlib, which is not installed" in done.stderr
