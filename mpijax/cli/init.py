"""``mpijax init my_project``: create a small project to start from.

It has a program that fits a line on any number of ranks, tests of it for one rank and for several (pytest-mpi), a batch
script, and a README with the commands.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from mpijax.cli import submit

_PROGRAM = '''"""Fits a line to points that are shared out among the ranks."""

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.sharding import Mesh, PartitionSpec as P


def make_step(mesh, rate=0.3):
    """A compiled step of gradient descent: (weights, x, y) -> (new weights, loss). Rows of x and y are shared out."""

    def loss(w, x, y):
        error = jnp.mean((x @ w - y) ** 2)          # of this rank's rows
        return jax.lax.pmean(error, "ranks")        # of all rows: one MPI_Allreduce inside the program

    total = jax.shard_map(loss, mesh=mesh, in_specs=(P(), P("ranks"), P("ranks")), out_specs=P())

    @jax.jit
    def step(w, x, y):
        value, gradient = jax.value_and_grad(total)(w, x, y)
        return w - rate * gradient, value

    return step


def fit(steps=60, rows_per_rank=256):
    """The weights that were found, and the loss at the end."""
    mesh = Mesh(jax.devices(), ("ranks",))          # one device per rank
    rows = rows_per_rank * jax.device_count()
    x = jax.random.normal(jax.random.key(0), (rows, 2))
    y = x @ jnp.array([1.0, -2.0])
    step, w = make_step(mesh), jnp.zeros(2)
    for _ in range(steps):
        w, value = step(w, x, y)
    return w, value


if __name__ == "__main__":
    w, value = fit()
    if jax.process_index() == 0:
        print(f"{jax.process_count()} ranks: weights {jnp.round(w, 3)}, loss {value:.1e}")
'''

_TESTS = '''"""pytest                                                     on one rank
mpirun -n 2 python -m pytest --with-mpi -m mpi             on two ranks
"""

import mpi4py

mpi4py.rc.thread_level = "serialized"  # what mpijax asks for; pytest-mpi starts MPI before mpijax does

import numpy as np  # noqa: E402
import pytest  # noqa: E402

import mpijax as jax  # noqa: E402
from program import fit  # noqa: E402


def check():
    w, value = fit()
    np.testing.assert_allclose(w, [1.0, -2.0], atol=1e-4)
    assert value < 1e-6


def test_fit():
    check()


@pytest.mark.mpi(min_size=2)
def test_fit_on_several_ranks():
    assert jax.process_count() >= 2
    check()
'''

_README = """# {name}

A program for mpijax: `program.py` fits a line to points that are shared out among the
ranks.

    python program.py                                        one rank
    mpijax run -n 4 program.py                               four ranks on this machine
    {submit}    on a cluster
    pip install pytest pytest-mpi
    pytest                                                   the tests, on one rank
    mpirun -n 2 python -m pytest --with-mpi -m mpi           the tests, on two ranks

`job.sh` is for {scheduler}: 1 node, 4 ranks. Its environment is the one in which `mpijax init` ran.
"""

_CONFIGURATION = """[pytest]
testpaths = tests
pythonpath = .
"""


def files(name: str, scheduler: str) -> dict[str, str]:
    """The text of each file, by its path in the project."""
    job = submit.render(scheduler, submit.Request(1, 4, 1, 30, ["program.py"]))
    command = {"slurm": "sbatch job.sh", "pbs": "qsub job.sh", "lsf": "bsub < job.sh", "flux": "flux batch -n 4 job.sh"}
    readme = _README.format(name=name, scheduler=scheduler, submit=f"{command[scheduler]:<52}")
    return {
        "program.py": _PROGRAM,
        "tests/test_program.py": _TESTS,
        "pytest.ini": _CONFIGURATION,
        "job.sh": job,
        "README.md": readme,
    }


def parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(
        prog="mpijax init", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    p.add_argument("folder", type=Path, help="folder of the project; it must not have files of these names")
    p.add_argument(
        "--scheduler",
        choices=("slurm", "pbs", "lsf", "flux"),
        default="slurm",
        help="scheduler that job.sh is for (default: slurm)",
    )
    return p


def main(arguments: list[str]) -> int:
    """Write the files; 1 if one of them already exists, and nothing is written then."""
    options = parser().parse_args(arguments)
    folder: Path = options.folder
    written = files(folder.resolve().name, options.scheduler)
    there = [name for name in written if (folder / name).exists()]
    if there:
        print(f"mpijax init: {folder} already has {', '.join(there)}; choose another folder", file=sys.stderr)
        return 1
    for name, text in written.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    (folder / "job.sh").chmod(0o755)
    print(f"wrote {', '.join(written)} in {folder}\nNext: cd {folder} && mpijax run -n 2 program.py")
    return 0
