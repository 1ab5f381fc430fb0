"""The primitives that docs/add-a-primitive.md defines outside of mpijax, on arrays over ranks."""

from __future__ import annotations

import contextlib
import functools
import io
import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from spmd.ranks import SIZE, P, assert_same, mesh_1d, real

import mpijax as jax
from mpijax import NamedSharding, lax
from mpijax import numpy as jnp
from mpijax.runtime.program.traffic import sent

pytestmark = [pytest.mark.mpi, pytest.mark.two_ranks]  # the rules are those of any primitive

PAGE = Path(__file__).parents[2] / "docs" / "add-a-primitive.md"
N = 12
HALO = {1: 0, 2: 1}.get(SIZE, 2)  # two ranks swap rows in one message


@pytest.fixture(scope="module")
def page() -> SimpleNamespace:
    """What the page defines before it takes rules away."""
    text = PAGE.read_text()
    names: dict = {"__name__": "page"}
    with contextlib.redirect_stdout(io.StringIO()):
        for block in re.findall(r"^```python\n(.*?)^```", text[: text.index("## Check it")], re.M | re.S):
            exec(block, names)
    return SimpleNamespace(**names)


def over_ranks(x):
    return jax.device_put(x, NamedSharding(mesh_1d(), P("i")))


def sent_by(f, x) -> list[str]:
    return [s.kind for s in sent(jax.jit(f).lower(over_ranks(x)).compiler_ir()) for _ in range(s.times)]


def check(f, x, kinds):
    """The same on parts as on one rank; how it communicates."""
    assert_same(jax.jit(f)(over_ranks(x)), jax.jit(f)(jnp.asarray(x)), rtol=1e-5, atol=1e-5)
    if SIZE > 1:
        assert sent_by(f, x) == kinds


def test_rows_of_a_transform_along_another_axis_stay_where_they_are(page):
    x = real((N, 5))
    check(page.dct, x, [])
    check(jax.vmap(page.dct), x, [])
    check(jax.grad(lambda x: jnp.sum(page.dct(x) ** 3)), x, [])
    check(functools.partial(page.dct, axis=0), x, ["allgather"])


def test_a_rule_with_a_halo(page):
    x = real((N, 5))
    check(page.smooth, x, ["permute"] * HALO)
    np.testing.assert_allclose(jax.jit(page.smooth)(jnp.asarray(x)), page.smooth_p.reference(x), rtol=1e-6)
    check(jax.vmap(page.smooth, 1, 1), x, ["permute"] * HALO)
    check(lambda x: lax.fori_loop(0, 4, lambda _, x: page.smooth(x), x), x, ["permute"] * 4 * HALO)


def test_a_rule_with_a_halo_on_parts_of_unequal_size(page):
    check(lambda x: jnp.sum(page.smooth(x[1:]) ** 2), real((N, 5)), ["permute"] * HALO + ["allreduce_sum"])


def test_the_gradient_of_a_rule_with_a_halo(page):
    def energy(x):
        return jnp.sum(page.smooth(x) ** 2)

    check(jax.grad(energy), real((N, 5)), sent_by(jax.grad(energy), real((N, 5))))
    assert "allgather" not in sent_by(jax.grad(energy), real((N, 5)))


def test_own_operations_fuse(page):
    """Two primitives of the page and two of mpijax: one loop nest on one rank."""
    nests = jax.jit(lambda x: 2 * page.softsign(page.smooth(x)) + 1).lower(jnp.ones((N, 5))).as_text()
    assert nests.count("\nkernel") + nests.startswith("kernel") == 1
    check(lambda x: 2 * page.softsign(x) + 1, real((N, 5)), [])


def test_an_operation_that_moves_elements_is_read_where_it_is_used(page):
    def f(x):
        return jnp.sum(page.even_p.bind(jnp.sin(x)) * jnp.cos(x[: (N + 1) // 2]))

    x = real((N,))
    nests = jax.jit(f).lower(x).as_text()
    assert nests.count("\nkernel") + nests.startswith("kernel") == 1
    assert_same(jax.jit(f)(x), np.sum(np.sin(x[::2]) * np.cos(x[: (N + 1) // 2])), rtol=1e-5)
