"""Products whose axes lie in any order, large enough for BLAS, which takes matrices only."""

import numpy as np
import pytest
from quickly import one_in

import mpijax
from mpijax import lax
from mpijax import numpy as jnp

LETTERS = "abcdefg"


def random_product(seed):
    """Dimension numbers, shapes and the subscripts of numpy's einsum of a product with axes in any order."""
    rng = np.random.default_rng(seed)
    batch, free, other, contracted = (list(rng.integers(2, 9, n)) for n in (rng.integers(0, 3), 2, 2, rng.integers(1, 3)))
    contracted[0] = 24  # together at least 2 * 2 * 24 and more: large sizes make up for it
    free[-1], other[-1] = 33, 17
    names = dict(zip("bflr", (batch, free, other, contracted), strict=True))
    axes = {k: [(k, i) for i in range(len(v))] for k, v in names.items()}
    sides = [[*axes["b"], *axes[own], *axes["r"]] for own in "fl"]
    sides = [[side[i] for i in rng.permutation(len(side))] for side in sides]
    letter = {a: LETTERS[i] if i < 7 else "hijk"[i - 7] for i, a in enumerate(sum(axes.values(), []))}
    numbers = tuple(tuple(tuple(side.index(a) for a in axes[k]) for side in sides) for k in "rb")
    result = [*axes["b"], *(a for a in sides[0] if a[0] == "f"), *(a for a in sides[1] if a[0] == "l")]
    text = [*("".join(letter[a] for a in side) for side in sides), "".join(letter[a] for a in result)]
    shapes = [tuple(int(names[k][i]) for k, i in side) for side in sides]
    x, y = (rng.standard_normal(s).astype(np.float32) for s in shapes)
    return numbers, x, y, np.einsum(f"{text[0]},{text[1]}->{text[2]}", x.astype(float), y.astype(float))


@pytest.mark.parametrize("seed", one_in(3, range(24)))
@pytest.mark.one_in(2)
def test_axes_in_any_order(seed):
    numbers, x, y, want = random_product(seed)
    for f in (lambda x, y: lax.dot_general(x, y, numbers), lambda x, y: lax.dot_general(jnp.sin(x), y + 1, numbers) * 2):
        eager, jitted = f(x, y), mpijax.jit(f)(x, y)
        assert eager.shape == jitted.shape == want.shape
        np.testing.assert_allclose(jitted, eager, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(lax.dot_general(x, y, numbers), want, rtol=1e-4, atol=1e-3)


def test_images_with_channels_last_are_resized():
    x = np.random.default_rng(0).standard_normal((4, 32, 32, 16)).astype(np.float32)
    got = mpijax.image.resize(x, (4, 64, 48, 16), "bilinear")
    for c in range(0, 16, 5):
        one = mpijax.image.resize(x[..., c], (4, 64, 48), "bilinear")
        np.testing.assert_allclose(got[..., c], one, rtol=1e-5, atol=1e-5)
