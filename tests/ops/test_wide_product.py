"""`lax.mul` with `out_dtype`, beside JAX. Derivatives and batches are in the table of transforms."""

import ml_dtypes  # noqa: F401  # names of dtypes
import numpy as np
import pytest
from oracle import check, sample

CASES = {
    "wider": (np.int8, np.int8, np.int32),
    "narrower": (np.float32, np.float32, "bfloat16"),
    "mixed": (np.float32, "float16", np.float32),
    "to float": (np.int32, np.int32, np.float32),
    "to integer": (np.float32, np.float32, np.int32),
    "to complex": (np.float32, np.int32, np.complex64),
    "bool": (np.bool_, np.bool_, np.int32),
}


@pytest.mark.parametrize("case", CASES)
def test_products_in_another_dtype(case):
    a, b, out = CASES[case]
    x, y = (np.asarray(9 * sample(2, 3, seed=i)).astype(d) for i, d in enumerate((a, b)))
    check(lambda J: lambda x, y: J.lax.mul(x, y, out_dtype=np.dtype(out)), x, y)


def test_cotangents_have_the_operands_dtypes():
    x, y = sample(2, 3).astype(np.float16), sample(1, 3, seed=1).astype(np.float16)
    product = lambda J: lambda x, y: J.lax.mul(x, y, out_dtype="float32").sum()
    check(lambda J: J.grad(product(J), (0, 1)), x, y, rtol=1e-2)
    check(lambda J: J.vmap(lambda a, b: J.lax.mul(a, b, out_dtype="float32"), (0, None)), x, y[0])
    check(lambda J: lambda a: J.lax.mul(a, 2.0, out_dtype="float32"), 3.0)
