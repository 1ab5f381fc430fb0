"""Values that enter a mesh over all ranks and differ between them: an error names the first one that differs."""

from __future__ import annotations

import re

import numpy as np
import pytest
from launching import marked
from mpi.jobs import START_ALONE, Job, run_once
from mpijax._ext.array import checksum
from once import shared_folder

START = START_ALONE + """
import mpijax.numpy as jnp
from mpijax.sharding import Mesh, NamedSharding, PartitionSpec as P
mesh = Mesh(np.array(jax.devices()), ("x",))
everywhere, rows = NamedSharding(mesh, P()), NamedSharding(mesh, P("x"))
def told(name, code):
    try:
        eval(code)
        text = "passed"
    except AssertionError as error:  # JAX's class
        text = str(error).replace("\\n", "|")
    sys.stdout.write(f"{name} told to {rank}: {text}\\n")
    sys.stdout.flush()
"""
DIFFERENT = {
    "host": ("jax.device_put(np.random.normal(size=3), everywhere)", "leaf itself of type f32[3]", "rank 0"),
    "split": ("jax.device_put(np.arange(size) * (rank == 1), rows)", "leaf itself of type i32[3]", "ranks 0,2"),
    "leaf": (
        "jax.device_put({'bias': np.zeros(2), 'w': [np.ones(3), np.ones(3) + (rank == 2)]}, everywhere)",
        "leaf ['w'][1] of type f32[3]", "ranks 0-1",
    ),
    "array": ("jax.device_put(jax.random.normal(jax.random.key(rank), (2,)), everywhere)", "leaf itself of type f32[2]", "rank 0"),
    "number": ("jax.device_put(float(rank), everywhere)", "leaf itself of type f32[]", "rank 0"),
    "spec": ("jax.device_put(np.full(3, rank), P('x'))", "leaf itself of type i32[3]", "rank 0"),
}  # fmt: skip
ALIKE = f"codes = { {name: code for name, (code, *_) in DIFFERENT.items()}!r}" + """
with jax.set_mesh(mesh):
    for name, code in codes.items():
        told(name, code)
told("shapes", "jax.device_put(np.ones(3 + 3 * rank), rows)")
told("program", "jax.device_put(x[:3], rows) if rank else total(x)")
split = jax.device_put(np.arange(3, dtype="f4"), rows)
told("argument", "jax.jit(lambda x, c, w: jnp.sum(x * c * w))(split, np.ones(3, 'f4'), np.full(3, rank, 'f4'))")
told("argument's type", "jax.jit(lambda x, w: jnp.max(x * w))(split, np.ones(3, 'f4' if rank else 'f2'))")
print("own arguments", total(x * rank), jax.jit(lambda x, w: jnp.min(x * w))(split, np.ones(3, "f4")))
x = np.random.default_rng(7).normal(size=(3, 5)).astype("f4")
x[0, 0] = np.nan
for value in (x, jnp.asarray(x), {"a": 1, "b": [True, 2.5, x]}, jax.random.key(1)):
    for sharding in (everywhere, rows) if getattr(value, "ndim", 0) == 2 else (everywhere,):
        put = jax.device_put(value, sharding)
        jax.device_put(put, everywhere)
        jax.device_put(value, jax.local_devices()[0])
jax.device_put(np.full(2, rank))
one = np.full((1, 2), rank)
np.testing.assert_array_equal(jax.make_array_from_process_local_data(rows, one).addressable_shards[0].data, one)
print(f"right to the end on {rank}")
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    off = Job("jax.device_put(np.full(2, rank), everywhere); print('done')", 2, {"MPIJAX_GUARD": "0"}, start=START)
    jobs = {"values": Job(ALIKE, 3, start=START), "off": off}
    return run_once(jobs, shared_folder(tmp_path_factory, "same values"))


@marked
@pytest.mark.parametrize("name", DIFFERENT)
def test_all_ranks_are_told(outcomes, name):
    _, leaf, ranks = DIFFERENT[name]
    for rank in range(3):
        [told] = re.findall(f"^{name} told to {rank}: (.*)$", outcomes["values"].output, re.M)
        assert "passed to device_put is not the same on each process" in told and leaf in told, told
        assert f"one value on {ranks} and another" in told and "without a seed" in told and "at <string>" in told, told


@marked
def test_other_calls(outcomes):
    found = outcomes["values"]
    assert all(f"right to the end on {rank}" in found.output for rank in range(3)) and found.status == 0, found.output
    for rank in range(3):
        [shapes] = re.findall(f"^shapes told to {rank}: (.*)$", found.output, re.M)
        assert "device_put of 1 value(s), f32[3] first" in shapes and "f32[6] first" in shapes, shapes
        [program] = re.findall(f"^program told to {rank}: (.*)$", found.output, re.M)
        assert "device_put of 1 value(s)" in program and "allreduce float32[4] sum" in program, program
        [argument] = re.findall(f"^argument told to {rank}: (.*)$", found.output, re.M)
        assert "array 2 of the 3 that it reads, of type f32[3]" in argument, argument
        assert "one value on rank 0 and another" in argument and "at <string>" in argument, argument
        [kind] = re.findall(f"^argument's type told to {rank}: (.*)$", found.output, re.M)
        assert "whole arguments f16[3]" in kind and "whole arguments f32[3]" in kind and "at <string>" in kind, kind
    assert outcomes["off"].status == 0 and outcomes["off"].output.count("done") == 2


def test_checksums_tell_contents_apart():
    data = np.random.default_rng(0).integers(0, 255, 200).astype(np.uint8)
    seen = {checksum(data[:n]) for n in range(200)} | {checksum(np.zeros(n, np.uint8)) for n in range(1, 100)}
    for place in range(200):
        other = data.copy()
        other[place] ^= 1
        seen.add(checksum(other))
        seen.add(checksum(np.roll(data, place)))
    assert len(seen) == 200 + 99 + 200 + 200
    assert checksum(data[::2]) == checksum(data[::2].copy())
