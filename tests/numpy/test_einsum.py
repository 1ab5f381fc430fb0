"""einsum and the products of arrays against JAX: Jaxprs, values, errors."""

# ruff: noqa: B023 (functions of loop variables are called before the next iteration)
import numpy as np
import pytest
from oracle import OURS, check, sample
from quickly import one_in

SPECS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("ij->ji", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iii->i", (3, 3, 3)),
    ("ij->", (2, 3)),
    ("i,j->ij", (2,), (3,)),
    ("i,i", (3,), (3,)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk->...ik", (5, 2, 3), (1, 3, 4)),
    ("ijk,kl->ijl", (2, 3, 4), (4, 5)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("iij,jk->ik", (2, 2, 3), (3, 4)),
    ("ij,kl->ki", (2, 3), (4, 5)),
    ("ij,ij->ij", (2, 3), (2, 3)),
    ("ij,j->i", (2, 1), (3,)),
    ("...b,b->...", (3, 4), (4,)),
    ("...i->...", (2, 3)),
    ("i...->...", (2, 3, 4)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 5)),
    ("i,ij,j", (3,), (3, 4), (4,)),
    ("abc,cd,de,ea->b", (2, 3, 4), (4, 5), (5, 6), (6, 2)),
    ("...h1d,k1d->...hk", (2, 3, 1, 4), (5, 1, 4)),
    ("b_1aA", (2, 3, 4, 5, 6)),
    ("i.j->i", (2, 3)),
    ("ij,jk->ik", (2, 3), (4, 5)),
    ("ij->ik", (2, 3)),
    ("ijk->ij", (2, 3)),
    ("ij->ijj", (2, 3)),
    ("i,j", (2,)),
]


@pytest.mark.parametrize("case", one_in(3, SPECS), ids=repr)
@pytest.mark.one_in(3)
def test_einsum(case):
    spec, *shapes = case
    arrays = [sample(*shape, seed=i) for i, shape in enumerate(shapes)]
    check(lambda J: lambda *xs: J.numpy.einsum(spec, *xs), *arrays, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("optimize", [True, False, "greedy", [(1, 2), (0, 1)]], ids=repr)
def test_einsum_order(optimize):
    arrays = [sample(2, 3), sample(3, 4), sample(4, 5)]
    check(lambda J: lambda *xs: J.numpy.einsum("ij,jk,kl", *xs, optimize=optimize), *arrays, rtol=1e-5)


def test_einsum_of_numbered_axes():
    a, b = sample(2, 3), sample(3, 4)
    check(lambda J: lambda a, b: J.numpy.einsum(a, (0, 1), b, (1, 2), (0, 2)), a, b)
    check(lambda J: lambda a, b: J.numpy.einsum(a, [0, 1], b, [1, 2]), a, b)
    check(lambda J: lambda a: J.numpy.einsum(a, (..., 0)), a)


def test_einsum_dtypes():
    a, b = sample(2, 3), sample(3, 4)
    for x, y in (
        (a, b.astype(np.int32)),
        (a.astype(np.int32), b.astype(np.int32)),
        (a, b.astype(np.complex64)),
    ):
        check(lambda J: lambda x, y: J.numpy.einsum("ij,jk", x, y), x, y, rtol=1e-6)
    check(
        lambda J: (
            lambda x, y: J.numpy.einsum(
                "ij,jk",
                x.astype("bfloat16"),
                y.astype("bfloat16"),
                preferred_element_type=np.float32,
                precision="highest",
            )
        ),
        a,
        b,
        eager=False,
    )


def test_einsum_path_matches_opt_einsum():
    path, _ = OURS.numpy.einsum_path("ij,jk,kl->il", sample(2, 3), sample(3, 4), sample(4, 5), optimize=False)
    assert path == [(0, 1), (0, 1)]


SHAPES = [
    ((), ()), ((3,), (3,)), ((2, 3), (3,)), ((3,), (3, 4)), ((2, 3), (3, 4)), ((5, 2, 3), (3, 4)),
    ((2, 3), (5, 3, 4)), ((5, 2, 3), (5, 3, 4)), ((1, 2, 3), (5, 3, 4)), ((5, 2, 3), (1, 3, 4)),
    ((1, 2, 3), (1, 3, 4)), ((7, 1, 2, 3), (5, 3, 4)), ((2, 3), (2, 3)), ((4, 2, 3), (2, 3)),
    ((2, 0), (0, 3)),
]  # fmt: skip
PRODUCTS = ["dot", "matmul", "inner", "outer", "kron", "vdot", "tensordot", "vecdot", "matvec", "vecmat"]


@pytest.mark.sweep
@pytest.mark.parametrize("shapes", SHAPES, ids=repr)
@pytest.mark.parametrize("product", PRODUCTS)
@pytest.mark.one_in(3)
def test_product(product, shapes):
    for dtypes in ((np.float32, np.float32), (np.int32, np.float32), (np.complex64, np.float32)):
        a, b = (sample(*shape, dtype=d, seed=i) for i, (shape, d) in enumerate(zip(shapes, dtypes, strict=True)))
        # Where the Jaxprs are the same, the values of one product tell enough about the other dtypes.
        jitted = dtypes[0] is np.float32 or shapes == ((2, 3), (3, 4))
        check(
            lambda J: lambda a, b: getattr(J.numpy, product)(a, b), a, b, eager=False, jitted=jitted, rtol=1e-5, atol=1e-5
        )


@pytest.mark.parametrize("axes", [0, 1, 2, 3, (0, 1), ([0, 1], [1, 0]), (-1, -1), ([0], [0, 1]), "x"], ids=repr)
def test_tensordot_axes(axes):
    check(lambda J: lambda a, b: J.numpy.tensordot(a, b, axes), sample(2, 2), sample(2, 2, seed=1), rtol=1e-6)


def test_python_scalars_stay_weak():
    check(lambda J: lambda a: J.numpy.dot(a, 2.0), sample(2, 2))
    check(lambda J: lambda a: J.numpy.dot(a, 2.0), 3.0)
    check(lambda J: lambda a: a @ np.ones((2, 2), np.float32) if hasattr(a, "aval") else 0, sample(2, 2), eager=False)


def test_preferred_element_type():
    check(
        lambda J: (
            lambda a, b: J.numpy.matmul(a.astype("bfloat16"), b.astype("bfloat16"), preferred_element_type=np.float32)
        ),
        sample(2, 3),
        sample(3, 4),
        eager=False,
    )


@pytest.mark.parametrize("product", ["matmul", "dot", "tensordot"])
def test_gradients(product):
    check(
        lambda J: J.grad(lambda a, b: (getattr(J.numpy, product)(a, b) ** 2).sum(), argnums=(0, 1)),
        sample(3, 3),
        sample(3, 3, seed=1),
        jaxpr=False,
        rtol=1e-5,
    )
