"""A folder that all ranks share."""

import shutil
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("tensorstore", reason="needs mpijax[checkpoint]")


@pytest.fixture
def folder():
    import mpijax as jax
    from mpijax.runtime.mpi import objects

    first = jax.process_index() == 0
    path = Path(objects.bcast(tempfile.mkdtemp(prefix="mpijax-checkpoint-") if first else None, 0, "test folder"))
    yield path / "state"
    objects.allgather(None, "test folder")
    if first:
        shutil.rmtree(path)
