"""Lineax and Optimistix: linear systems by several solvers, least squares, roots, minima, with derivatives."""

import jax
import jax.numpy as jnp
import lineax as lx
import optimistix as optx

jax.config.update("jax_enable_x64", True)


def run():
    a = jax.random.normal(jax.random.key(0), (12, 12)) + 6 * jnp.eye(12)
    spd = a @ a.T
    b = jnp.arange(12.0)
    found = {}
    for name, solver in {"lu": lx.LU(), "qr": lx.QR(), "svd": lx.SVD(), "gmres": lx.GMRES(1e-10, 1e-10),
                         "bicgstab": lx.BiCGStab(1e-10, 1e-10), "auto": lx.AutoLinearSolver(well_posed=None)}.items():  # fmt: skip
        found[name] = lx.linear_solve(lx.MatrixLinearOperator(a), b, solver).value
    positive = lx.MatrixLinearOperator(spd, lx.positive_semidefinite_tag)
    found["cholesky"] = lx.linear_solve(positive, b, lx.Cholesky()).value
    found["cg"] = lx.linear_solve(positive, b, lx.CG(1e-10, 1e-10)).value
    tri = lx.TridiagonalLinearOperator(4 + jnp.arange(12.0), jnp.ones(11), jnp.ones(11))
    found["tridiagonal"] = lx.linear_solve(tri, b).value
    found["gradient"] = jax.grad(lambda m: lx.linear_solve(lx.MatrixLinearOperator(m), b).value.sum())(a)

    def rosenbrock(y, scale):
        return jnp.stack([scale * (y[1] - y[0] ** 2), 1 - y[0]])

    start = jnp.array([-1.2, 1.0])
    for name, solver in {"lm": optx.LevenbergMarquardt(1e-10, 1e-10), "dogleg": optx.Dogleg(1e-10, 1e-10),
                         "gauss": optx.GaussNewton(1e-10, 1e-10)}.items():  # fmt: skip
        found[name] = optx.least_squares(rosenbrock, solver, start, 10.0, max_steps=1000).value
    total = lambda y, scale: jnp.sum(rosenbrock(y, scale) ** 2)
    found["bfgs"] = optx.minimise(total, optx.BFGS(1e-8, 1e-8), start, 10.0, max_steps=1000).value
    found["nelder"] = optx.minimise(total, optx.NelderMead(1e-8, 1e-8), start, 10.0, max_steps=2000).value
    root = lambda k: optx.root_find(lambda y, k: y - jnp.cos(k * y), optx.Newton(1e-10, 1e-10), jnp.array(0.5), k).value
    found["root"], found["implicit"] = root(1.3), jax.grad(root)(1.3)
    return found
