"""The log of operations between ranks has a line at the begin and at the end of each."""

from __future__ import annotations

import importlib
import re

import numpy as np
import pytest

import mpijax as jax
from mpijax import lax, mpi
from mpijax.mpi._src import xla_bridge

pytestmark = pytest.mark.mpi(min_size=2)


@pytest.fixture
def logged(capsys):
    """Runs a function with the log on; its lines, which begin with the rank, without the rank."""

    def run(function, *args):
        jax.block_until_ready(function(*args))  # agreements on new programs are no operations of the program
        capsys.readouterr()
        jax.config.update("mpijax_log_operations", True)
        try:
            jax.block_until_ready(function(*args))
        finally:
            jax.config.update("mpijax_log_operations", False)
        lines = capsys.readouterr().out.splitlines()
        assert all(line.startswith(f"r{jax.process_index()} | ") for line in lines)
        function(*args)
        assert capsys.readouterr().out == ""
        return [line.partition(" | ")[2] for line in lines]

    return run


DONE = r"{} \| {} done with code 0 \(\d\.\d\de[+-]\d\ds\)"


def test_operations_in_order(logged):
    def step(x):
        return lax.fori_loop(0, 2, lambda i, y: mpi.allreduce(y, "MAX"), mpi.allgather(x)[0])

    lines = logged(jax.jit(step), np.ones((3, 2), np.float32))
    numbers = [line[:8] for line in lines[::2]]
    assert len(lines) == 6 and len(set(numbers)) == 3 and numbers == sorted(numbers)
    for begin, end, name in zip(lines[::2], lines[1::2], ("MPI_Allgather", *["MPI_Allreduce"] * 2), strict=True):
        here = rf"{begin[:8]} \| {name} with 6 items: float32\[3,2\] .*on all ranks at \S*test_operation_log.py:\d+ \(.*\)"
        assert re.fullmatch(here, begin) and re.fullmatch(DONE.format(begin[:8], name), end), lines


def test_operations_that_run_beside_others(logged):
    def both(x, y):
        a, b = mpi.allreduce(x, "SUM"), mpi.sendrecv(y, y, source=before, dest=after)
        return a + 1, b * 2, np.float32(3) * x @ x

    rank, size = jax.process_index(), jax.process_count()
    before, after = (rank - 1) % size, (rank + 1) % size
    x = np.ones((200, 200), np.float32)
    lines = logged(jax.jit(both), x, x[0])
    for number in {line[:8] for line in lines}:
        begin, end = (line for line in lines if line[:8] == number)
        name, items = re.search(r"(MPI_\w+) with (\d+) items", begin).groups()
        assert (name, items) in (("MPI_Allreduce", "40000"), ("MPI_Sendrecv", "200"))
        assert re.fullmatch(DONE.format(number, name), end), lines
    assert len(lines) == 4


def test_mpi4jax_turns_it_on_and_off(capsys):
    total = jax.jit(lambda x: mpi.allreduce(x, "SUM"))
    total(np.ones(4, np.float32))
    xla_bridge.set_logging(True)
    total(np.ones(4, np.float32))
    assert xla_bridge.get_logging()
    xla_bridge.set_logging(False)
    assert not xla_bridge.get_logging() and capsys.readouterr().out.count("MPI_Allreduce") == 2


def test_mpi4jaxs_variable_counts_when_its_module_is_reloaded(monkeypatch):
    for text, logs in (("1", True), ("0", False)):
        monkeypatch.setenv("MPI4JAX_DEBUG", text)
        importlib.reload(xla_bridge)
        assert xla_bridge.get_logging() is logs
