"""JAX's answers, kept beside the tests: what JAX answered before it does not compute again.

There are two kinds, of which a test uses the first that it can:

* to a question of `oracle.check`: by the text of the function and all that it refers to (answers_to_questions.py);
* of a program that JAX would compile: by the lowered program and its arguments (answers_of_programs.py).

Each run computes a sample of the kept answers again, and fails where they differ. Answers are lines
of `tests/FOLDER/answers.txt`, in order: two branches that add answers merge line by line.
"""

from __future__ import annotations

import fcntl
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from fingerprints import digest

NAME = "answers.txt"
SAMPLE = 50  # One kept answer of so many is computed again.
LARGEST = 8192  # characters of an answer that is kept
KEY = len(digest(b""))


class Answers:
    """The kept answers of a folder of tests."""

    def __init__(self, folder: Path, mode: str):
        self.file = folder / NAME
        self.mode = mode
        self.kept = read(self.file)
        self.programs = {key[:KEY] for key in self.kept}
        self.new: dict[str, str] = {}

    def sampled(self, key: str) -> bool:
        return self.mode == "fresh" or zlib.crc32(key.encode()) % SAMPLE == 0

    def keep(self, key: str, answer: str) -> None:
        if len(answer) <= LARGEST:
            self.new[key] = answer

    def write(self) -> None:
        """Add new answers to the file, which other processes of this run may write too."""
        if not self.new:
            return
        with self.file.open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            lines = sorted(f"{key} {answer}\n" for key, answer in (read(self.file) | self.new).items())
            file.truncate(0)
            file.writelines(lines)


def read(file: Path) -> dict[str, str]:
    if not file.exists():
        return {}
    return dict(line.split(" ") for line in file.read_text().splitlines())


class Session:
    """The answers that tests of a folder use, from its first test on."""

    def __init__(self) -> None:
        self.mode = "kept"
        self.folders: dict[Path, Answers] = {}
        self.current: Answers | None = None
        self.paused = False

    def enter(self, folder: Path) -> None:
        if folder not in self.folders:
            self.folders[folder] = Answers(folder, self.mode)
        self.current = self.folders[folder]

    @contextmanager
    def nothing_kept(self) -> Iterator[None]:
        """JAX compiles and runs all, and what it answers is not kept."""
        self.paused = True
        try:
            yield
        finally:
            self.paused = False

    def write(self) -> None:
        for answers in self.folders.values():
            answers.write()


session = Session()


def close(a: np.ndarray, b: np.ndarray) -> bool:
    """Whether two results are the same up to rounding, which depends on the machine."""
    if (a.dtype, a.shape) != (b.dtype, b.shape):
        return False
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    if a.dtype.kind == "V":  # bfloat16 and narrower
        a, b = a.astype(np.float32), b.astype(np.float32)
        tolerance = 0.01
    else:
        tolerance = float(np.sqrt(np.finfo(a.dtype).eps))
    finite = np.abs(b[np.isfinite(b)])
    return np.allclose(a, b, tolerance, tolerance * finite.max() if finite.size else 0, equal_nan=True)
