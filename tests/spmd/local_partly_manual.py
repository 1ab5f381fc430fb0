"""`shard_map` over some axes of a mesh of four devices, beside the real JAX. Run by test_local_devices.py."""

from __future__ import annotations

import numpy as np
import pytest
from spmd.local_devices import OURS, REAL
from spmd.partly_manual import PROGRAMS


def results(s, name):
    program, operands, _ = PROGRAMS[name]

    def over(body, in_specs, out_specs):
        return s.over(body, s.grid, in_specs, out_specs, axis_names={"j"}, check_vma=name != "branches")

    outs = s.jax.jit(program(s, over))(*(s.put(x, s.P(*spec), s.grid) for x, spec in operands))
    return [(np.asarray(x), tuple(x.sharding.spec)) for x in s.jax.tree.leaves(outs)]


@pytest.mark.parametrize("name", PROGRAMS)
def test_values_and_shardings_are_those_of_jax(name):
    expected = [tuple(spec) for spec in PROGRAMS[name][2]]
    for (ours, our_spec), (theirs, their_spec), spec in zip(
        results(OURS, name), results(REAL, name), expected, strict=True
    ):
        np.testing.assert_allclose(ours, theirs, rtol=2e-5, atol=2e-5)
        assert our_spec == their_spec == spec
