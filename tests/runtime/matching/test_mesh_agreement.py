"""Ranks that mean different groups along a mesh: other axes, other groups, devices in another order. All are told."""

from __future__ import annotations

import re

import pytest
from launching import marked
from mpi.jobs import START_ALONE, Job, run_once
from once import shared_folder

START = START_ALONE + """
from mpijax.sharding import Mesh, PartitionSpec as P
devices = np.array(jax.devices())
grid = Mesh(devices.reshape(-1, 2), ("x", "y"))
line = Mesh(devices, ("x",))
def total(mesh, axis, **how):
    spec = P(mesh.axis_names)
    f = jax.shard_map(lambda y: lax.psum(y, axis, **how), mesh=mesh, in_specs=spec, out_specs=spec, check_vma=False)
    return jax.jit(f)
def told(name, code):
    try:
        print("passed:", eval(code))
    except JaxRuntimeError as error:
        sys.stdout.write(f"{name}, told to {rank}: " + str(error).replace("\\n", "|") + "\\n")
    sys.stdout.flush()
x = np.arange(size, dtype=np.float32)
"""
# (ranks, what each runs, what both lines say)
DISAGREEMENTS = {
    "another axis": (4, "total(grid, 'x' if rank else 'y')(x)", ("axes ('y',)", "axes ('x',)")),
    "another order": (2, "total(Mesh(devices[::-1], 'x') if rank else line, 'x')(x)", ("allreduce_sum", "devices [1, 0]")),
    "two orders": (
        4, "total(Mesh(devices[::-1] if rank == 1 else devices[[1, 0, 2, 3]], 'x'), 'x')(x)",
        ("devices [1, 0, 2, 3]", "devices [3, 2, 1, 0]"),
    ),
    "another grid": (
        4, "total(Mesh((devices if rank else devices[::-1]).reshape(2, 2), ('x', 'y')), 'x')(x)",
        ("devices [3, 2, 1, 0]", "devices [0, 1, 2, 3]"),
    ),
    "other groups": (
        4, "total(line, 'x', axis_index_groups=[[0, 1], [2, 3]] if rank else [[0, 2], [1, 3]])(x)",
        ("groups ((0, 2), (1, 3))", "groups ((0, 1), (2, 3))"),
    ),
    "groups of one": (
        4, "total(line, 'x', axis_index_groups=[[0, 1], [2, 3]] if rank else None)(x)",
        ("allreduce_sum", "groups ((0, 1), (2, 3))"),
    ),
}  # fmt: skip
KNOWN = """
print(total(grid, "x")(x).shape, total(grid, "y")(x).shape)
f = {axis: total(grid, axis) for axis in "xy"}
for axis in "xy":
    f[axis](x)
for _ in range(2):
    f["x" if rank else "y"](x)
print("not reached")
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory, request):
    """All disagreements of one number of ranks run in one job, one after the other."""
    jobs = {"known": Job(KNOWN, 4, start=START)} if request.config.getoption("--slow") else {}
    for name, (ranks, code, _) in DISAGREEMENTS.items():
        jobs.setdefault(f"{ranks} ranks", Job("", ranks, start=START)).body += f"told({name!r}, {code!r})\n"
    return run_once(jobs, shared_folder(tmp_path_factory, "mesh agreement"))


@marked
@pytest.mark.parametrize("name", DISAGREEMENTS)
def test_all_ranks_are_told(outcomes, name):
    ranks, _, texts = DISAGREEMENTS[name]
    output = outcomes[f"{ranks} ranks"].output
    for rank in range(ranks):
        [told] = re.findall(f"^{name}, told to {rank}: (.*)$", output, re.M)
        assert told.startswith("ranks run different collectives"), output
        assert all(text in told for text in texts), told
        assert told.count("at <string>:") == 2, told


@marked
@pytest.mark.slow  # by default tests/faults has known programs in another order
def test_known_programs_along_other_axes_end(outcomes):
    found = outcomes["known"]
    assert found.status != 0 and "ending the job" in found.output and found.output.count("not reached") < 4, found.output
