"""Programs of `shard_map` over axis j of a mesh, on arrays that are split over axis i, too.

`PROGRAMS`: for each name the program of a system `s` and of the function `over(body, in_specs, out_specs)`; the specs of
its operands; and the specs of its results.
"""

from __future__ import annotations

import numpy as np

rng = np.random.default_rng(3)
X = rng.normal(size=(4, 8)).astype(np.float32)
W = rng.normal(size=(8, 6)).astype(np.float32)
STAGES = rng.normal(size=(2, 8, 8)).astype(np.float32)
SWAPPED = [(0, 1), (1, 0)]
# The specs of P(), P("i"), ...
NONE, I, J, IJ, _J, _I, JI = (), ("i",), ("j",), ("i", "j"), (None, "j"), (None, "i"), ("j", "i")


def pipeline(s, over):
    def body(w, x):
        def step(_, c):
            return s.lax.ppermute(s.jnp.tanh(c @ w[0]), "j", SWAPPED)

        return s.lax.fori_loop(0, 4, step, s.lax.pcast(x, ("j",), to="varying"))[None]

    return over(body, (s.P("j"), s.P()), s.P("j"))


def scanned(s, over):
    def body(x):
        def step(c, t):
            return s.lax.ppermute(c * t, "j", SWAPPED), c.sum()

        return s.lax.scan(step, x, s.jnp.arange(3.0) + 1)[0]

    return over(body, s.P(None, "j"), s.P(None, "j"))


def gradients(s, over):
    f = over(lambda x, w: s.lax.psum(s.jnp.tanh(x @ w), "j"), (s.P(None, "j"), s.P("j")), s.P())
    return s.jax.grad(lambda x, w: (f(x, w) ** 2).sum(), argnums=(0, 1))


def branches(s, over):
    def body(x):
        return s.lax.cond(s.lax.axis_index("j") > 0, lambda x: x * 2, lambda x: x - 1, x)

    return over(body, s.P(None, "j"), s.P(None, "j"))


def _of(body, spec_in, spec_out):
    return lambda s, over: over(lambda *xs: body(s, *xs), _specs(s, spec_in), s.P(*spec_out))


def _specs(s, given):
    return tuple(s.P(*spec) for spec in given) if given and isinstance(given[0], tuple) else s.P(*given)


PROGRAMS = {
    "itself": (_of(lambda s, x: x, NONE, NONE), [(X, I)], [I]),
    "elementwise": (_of(lambda s, x: x * x, _J, _J), [(X, I)], [IJ]),
    "the same array axis": (_of(lambda s, x: x + s.lax.axis_index("j"), J, J), [(X, I)], [J]),
    "sum": (_of(lambda s, x: s.lax.psum(x, "j"), _J, NONE), [(X, I)], [I]),
    "maximum": (_of(lambda s, x: x - s.lax.pmax(x.max(), "j"), _J, _J), [(X, I)], [IJ]),
    "permutation": (_of(lambda s, x: s.lax.ppermute(x, "j", SWAPPED), _J, _J), [(X, I)], [IJ]),
    "scattered sum": (
        _of(lambda s, x: s.lax.psum_scatter(x, "j", scatter_dimension=1, tiled=True), _J, _J), [(X, I)], [IJ]),
    "exchange": (_of(lambda s, x: s.lax.all_to_all(x, "j", 1, 0, tiled=True), _J, J), [(X, _I)], [J]),
    "product": (_of(lambda s, x, w: s.lax.psum(x @ w, "j"), (_J, J), NONE), [(X, I), (W, _I)], [_I]),
    "softmax": (_of(lambda s, x: s.jax.nn.softmax(x, axis=0), _J, _J), [(X, I)], [IJ]),
    "sorted": (_of(lambda s, x: s.jnp.sort(x, axis=1)[:, ::-1], _J, _J), [(X, I)], [IJ]),
    "branches": (branches, [(X, I)], [IJ]),
    "gradients": (gradients, [(X, I), (W, _I)], [_J, JI]),
    "scan": (scanned, [(X, I)], [IJ]),
    "pipeline": (pipeline, [(STAGES, J), (X, I)], [JI]),
}  # fmt: skip
