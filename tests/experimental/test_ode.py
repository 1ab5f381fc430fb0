"""Ordinary differential equations beside closed forms and SciPy."""

import numpy as np
import pytest
import scipy.integrate

import mpijax
import mpijax.numpy as jnp
from mpijax.experimental.ode import odeint

T = np.linspace(0.0, 2.0, 5)


def pendulum(y, t, damping, gravity):
    angle, speed = y
    return speed, -damping * speed - gravity * jnp.sin(angle)


def test_solutions_are_scipys():
    with mpijax.enable_x64():
        ours = mpijax.jit(lambda y, t: odeint(pendulum, y, t, 0.25, 9.8))((np.pi - 0.1, 0.0), T)
    theirs = scipy.integrate.odeint(
        lambda y, t: [y[1], -0.25 * y[1] - 9.8 * np.sin(y[0])], [np.pi - 0.1, 0.0], T, rtol=1e-10, atol=1e-10
    )
    np.testing.assert_allclose(np.stack(ours, -1), theirs, rtol=1e-6, atol=1e-7)


def test_float32_trees_and_what_the_function_closes_over():
    rate = jnp.float32(0.7)
    solve = lambda rate: odeint(lambda y, t: {"y": -rate * y["y"] + t}, {"y": jnp.ones((2, 3))}, T.astype(np.float32))
    ys = solve(rate)["y"]
    exact = lambda t: (1 + 1 / 0.49) * np.exp(-0.7 * t) + t / 0.7 - 1 / 0.49
    assert ys.shape == (5, 2, 3) and ys.dtype == np.float32
    np.testing.assert_allclose(ys[:, 0, 0], exact(T), rtol=1e-5)
    slope = mpijax.grad(lambda rate: solve(rate)["y"][-1].sum())(rate)
    last = (np.arange(5) == 4).astype(np.float32)[:, None, None]
    [pulled_back] = mpijax.vjp(solve, rate)[1]({"y": last * np.ones((5, 2, 3), np.float32)})
    np.testing.assert_allclose(pulled_back, slope, rtol=1e-6)
    times = T[:2].astype(np.float32)
    [by_times] = mpijax.vjp(lambda ts: odeint(lambda y, t: -y, 1.0, ts), times)[1](np.ones(2, np.float32))
    np.testing.assert_allclose(by_times, np.array([1, -1]) * np.exp(times[0] - times[1]), rtol=1e-4)
    step = 1e-4
    with mpijax.enable_x64():
        high, low = (float(odeint(lambda y, t, r: -r * y + t, 1.0, T, r)[-1]) for r in (0.7 + step, 0.7 - step))
    np.testing.assert_allclose(slope, 6 * (high - low) / (2 * step), rtol=1e-3)


def test_gradients_by_start_times_and_arguments():
    """y = y0 exp(a t² / 2), from t = ts[0]."""
    with mpijax.enable_x64():
        fun = lambda y0, ts, a: odeint(lambda y, t, a, n: a * t * y * n, y0, ts, a, 1)[:, 0] @ jnp.arange(1.0, 6)
        exact = lambda y0, ts, a: (y0[0] * jnp.exp(a * (ts**2 - ts[0] ** 2) / 2)) @ jnp.arange(1.0, 6)
        point = np.array([1.5]), T + 0.1, 0.3
        ours, theirs = (mpijax.jit(mpijax.grad(f, (0, 1, 2)))(*point) for f in (fun, exact))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-7)


def test_limits_and_batches():
    stopped = odeint(lambda y, t: -y, jnp.ones(1), jnp.array([0.0, 5.0]), mxstep=1)
    assert stopped.shape == (2, 1) and abs(float(stopped[-1, 0]) - np.exp(-5)) > 1e-3
    short = odeint(lambda y, t: -y, jnp.ones(1), jnp.array([0.0, 1.0]), hmax=0.1, rtol=1e-3, atol=1e-3)
    np.testing.assert_allclose(short[-1], np.exp(-1), rtol=1e-4)
    rates = jnp.array([0.5, 2.0])
    many = mpijax.vmap(lambda a: odeint(lambda y, t: -a * y, jnp.ones(1), jnp.array([0.0, 1.0])))(rates)
    np.testing.assert_allclose(many[:, -1, 0], np.exp(-rates), rtol=1e-5)


def test_bad_input():
    with pytest.raises(TypeError, match="t must be an array of floats"):
        odeint(lambda y, t: y, 1.0, np.arange(3))
    with pytest.raises(TypeError, match="must be arrays or scalars, but got a"):
        odeint(lambda y, t, a: y, 1.0, T, "a")
