"""docs/first-steps.md: each program runs as the reader starts it and prints what the text says; the lists of what is
there and what is not are true.

The ```python blocks are one program, for one process. A ```python ranks=2 block is a program of its own, run by
`mpirun -n 2`. The ```text block after a block is what it prints. `python tests/docs/test_first_steps.py` writes the
output into the text, to be read before it is committed.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from launching import MPIRUN, PATHS, mpirun

import mpijax

ROOT = Path(__file__).resolve().parents[2]
DOCUMENT = ROOT / "docs" / "first-steps.md"

BLOCK = re.compile(r"^```(python|text)(?: ranks=(\d+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
END = "-- end of a block --"


def programs(text: str) -> list[tuple[int, list[tuple[str, re.Match]]]]:
    """(ranks, [(code, block of its output)]) of each program; 0 ranks: without mpirun."""
    found = list(BLOCK.finditer(text))
    pairs = [(b, after) for b, after in zip(found, found[1:], strict=False) if b[1] == "python"]
    assert all(after[1] == "text" for _, after in pairs), "a python block without its output"
    together = [(b[3], after) for b, after in pairs if not b[2]]
    return [(0, together), *((int(b[2]), [(b[3], after)]) for b, after in pairs if b[2])]


def outputs(ranks: int, blocks: list, folder: Path) -> list[str]:
    """What each block of a program prints."""
    (folder / "program.py").write_text("".join(f"{code}\nprint({END!r})\n" for code, _ in blocks[:-1]) + blocks[-1][0])
    # Without what a launcher of these tests told them, which would hold for the programs, too.
    launcher = ("PMI", "OMPI_", "HYDRA", "MPI_LOCAL")
    env = {name: value for name, value in os.environ.items() if not name.startswith(launcher)}
    env["PYTHONPATH"] = PATHS
    command = [*(mpirun(ranks) if ranks else []), sys.executable, "program.py"]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return [part.strip("\n") + "\n" for part in done.stdout.split(END)]


@pytest.mark.parametrize("number", range(len(programs(DOCUMENT.read_text()))))
def test_prints_what_the_text_says(number, tmp_path):
    ranks, blocks = programs(DOCUMENT.read_text())[number]
    if ranks and MPIRUN is None:
        pytest.skip("there is no mpirun")
    assert outputs(ranks, blocks, tmp_path) == [expected[3] for _, expected in blocks]


def columns() -> tuple[list[str], list[str]]:
    """The names in the table of what is there, and of what is not."""
    rows = [row.split("|")[2:4] for row in DOCUMENT.read_text().splitlines() if row.startswith("| ")][1:]
    here, missing = zip(*rows, strict=True)
    return re.findall(r"`([\w.]+)`", " ".join(here)), re.findall(r"`([\w.]+)`", " ".join(missing))


def available(name: str) -> bool:
    """Whether mpijax has a function, under some module, that is more than a message."""
    name = name.split(".")[-1]
    modules = (mpijax, mpijax.lax, mpijax.numpy, mpijax.mpi, mpijax.experimental, mpijax.debug)
    return any(hasattr(m, name) for m in modules)


def test_what_is_listed_as_there_is_there():
    assert [n for n in columns()[0] if n != ".at" and not available(n)] == []


def test_what_is_listed_as_missing_is_missing():
    parts = ("jit", "in_shardings", "out_shardings", "debug.print")  # of something that is there otherwise
    assert [n for n in columns()[1] if n not in parts and available(n)] == []


def renew() -> None:
    text = DOCUMENT.read_text()
    changes = []
    for ranks, blocks in programs(text):
        with tempfile.TemporaryDirectory() as folder:
            changes += zip([b for _, b in blocks], outputs(ranks, blocks, Path(folder)), strict=True)
    for block, printed in sorted(changes, key=lambda c: -c[0].start()):
        text = text[: block.start(3)] + printed + text[block.end(3) :]
    DOCUMENT.write_text(text)


if __name__ == "__main__":
    renew()
