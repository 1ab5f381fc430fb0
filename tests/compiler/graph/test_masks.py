"""Products with bool masks: what a mask excludes is 0, also inf and NaN."""

import numpy as np
import pytest
from oracle import OURS, THEIRS

X = np.array([np.inf, np.nan, -np.inf, 2.0, -3.0], np.float32)
MASK = np.array([False, False, True, True, False])
PRODUCTS = {
    "eager": lambda J: lambda x, m: x * m,
    "jitted": lambda J: J.jit(lambda x, m: m * x),
    "converted": lambda J: J.jit(lambda x, m: x * m.astype(x.dtype)),
    "compared": lambda J: J.jit(lambda x, m: x * (x < 0)),
    "complex": lambda J: J.jit(lambda x, m: (x + 0j) * m),
    "half": lambda J: lambda x, m: (x.astype("bfloat16") * m).astype("float32"),
    "integers": lambda J: J.jit(lambda x, m: x * m.astype("int32")),
}


@pytest.mark.parametrize("name", PRODUCTS)
def test_products_with_masks_are_those_of_jax(name):
    ours, theirs = (PRODUCTS[name](J)(J.numpy.array(X), J.numpy.array(MASK)) for J in (OURS, THEIRS))
    np.testing.assert_array_equal(ours, theirs)
