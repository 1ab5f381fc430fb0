"""OTT: Sinkhorn between point clouds, its gradient, low-rank Sinkhorn, Gromov-Wasserstein."""

import jax
import jax.numpy as jnp
from ott.geometry import geometry, pointcloud
from ott.problems.linear import linear_problem
from ott.problems.quadratic import quadratic_problem
from ott.solvers.linear import sinkhorn, sinkhorn_lr
from ott.solvers.quadratic import gromov_wasserstein


def run():
    keys = jax.random.split(jax.random.key(0), 2)
    x, y = jax.random.normal(keys[0], (24, 2)), jax.random.normal(keys[1], (30, 2)) + 1.0

    def cost(x):
        problem = linear_problem.LinearProblem(pointcloud.PointCloud(x, y, epsilon=0.5))
        return sinkhorn.Sinkhorn()(problem).reg_ot_cost

    value, gradient = jax.jit(jax.value_and_grad(cost))(x)
    plan = sinkhorn.Sinkhorn()(linear_problem.LinearProblem(geometry.Geometry(jnp.abs(x[:, :1] - y[:, 0]), epsilon=0.1)))
    low = sinkhorn_lr.LRSinkhorn(rank=5)(linear_problem.LinearProblem(pointcloud.PointCloud(x, y)))
    quadratic = quadratic_problem.QuadraticProblem(pointcloud.PointCloud(x), pointcloud.PointCloud(y))
    gw = gromov_wasserstein.GromovWasserstein(sinkhorn.Sinkhorn(), epsilon=1.0)(quadratic)
    return {
        "value": value, "gradient": gradient, "marginal": plan.matrix.sum(0), "low": low.reg_ot_cost,
        "gw": gw.reg_gw_cost,
    }  # fmt: skip
