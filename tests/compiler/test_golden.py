"""Loop nests and programs as texts, compared with `golden/*.txt`; `--update-golden` writes those anew."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import mpijax
import mpijax.numpy as jnp
from mpijax import lax

GOLDEN = Path(__file__).parent / "golden"


def f32(*shape):
    return np.zeros(shape, np.float32)


PROGRAMS = {
    "softmax": (lambda x: mpijax.nn.softmax(x), (f32(33, 65),)),
    "sums": (lambda x: (x.sum(0), x.sum(1), x.max()), (f32(33, 65),)),
    "update": (lambda x, y: (x * 2).at[1:-1].set(y), (f32(9, 7), f32(7, 7))),
    "pad": (lambda x: lax.pad(x, np.float32(0), ((1, 2, 0), (0, -1, 1))), (f32(5, 7),)),
    "border": (lambda x: lax.pad(x, np.float32(0), ((1, 2, 0), (0, -1, 0))) * 2, (f32(5, 7),)),
    "roll": (lambda x: x - jnp.roll(x, (1, -2), (0, 1)), (f32(9, 70),)),
    "concatenate": (lambda x, y: jnp.concatenate([x, jnp.sin(y), x]), (f32(7), f32(3))),
    "gather": (lambda x, i: x[i] + 1, (f32(9, 7), np.zeros(5, np.int32))),
    "transpose_add": (lambda x, y: x.T + y, (f32(48, 64), f32(64, 48))),
    "layer": (lambda x, w, b: jnp.tanh(x @ w + b), (f32(65, 40), f32(40, 33), f32(33))),
    "merge": (lambda x: (x[:, ::2].T * 2).reshape(-1), (f32(6, 8),)),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_golden(name, request):
    fun, args = PROGRAMS[name]
    lowered = mpijax.jit(fun).lower(*args)
    # Where in this file a line stands does not matter.
    text = "\n".join(
        line.split("   ; ")[0]
        for line in f"{lowered.as_text()}\n\n{lowered.compile().as_text()}".splitlines()
    )
    path = GOLDEN / f"{name}.txt"
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text.rstrip() + "\n")
    assert path.read_text() == text.rstrip() + "\n", f"run with --update-golden if {path.name} should change"
