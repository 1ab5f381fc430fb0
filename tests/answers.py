"""JAX's answers, kept beside the tests: a program that JAX ran before on the same arguments is not compiled again.

JAX traces and lowers as always, so its types, its Jaxprs and its errors are its own. A kept answer is found by a hash of
the lowered program and one of the arguments, of this version of JAX with these flags. What has no answer is compiled.
Each run computes a sample of the kept answers again, another one each day, and fails where they differ.

Answers are lines of `tests/FOLDER/answers.txt`, in order: two branches that add answers merge line by line.
"""

from __future__ import annotations

import fcntl
import functools
import math
import os
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest

NAME = "answers.txt"
SAMPLE = 50  # One kept answer of so many is computed again.
LARGEST = 1024  # bytes of an answer that is kept
# What a call of any other target does is not in the program's text.
KNOWN_CALLS = re.compile(r"custom_call @(?!lapack_|mhlo\.|chlo\.|Sharding\b)")


class Answers:
    """The kept answers of a folder of tests."""

    def __init__(self, folder: Path, mode: str):
        self.file = folder / NAME
        self.mode = mode
        self.kept = read(self.file)
        self.programs = {key[:PART] for key in self.kept}
        self.new: dict[str, str] = {}

    def sampled(self, key: str) -> bool:
        return self.mode == "fresh" or int(digest(key.encode()).hex(), 16) % SAMPLE == date.today().toordinal() % SAMPLE

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


def digest(data: bytes) -> bytes:
    return blake2b(data, digest_size=6).digest()


PART = len(b64encode(digest(b"")))


class Session:
    """The answers that tests of a folder use, from its first test on."""

    def __init__(self) -> None:
        self.mode = "kept"
        self.folders: dict[Path, Answers] = {}
        self.current: Answers | None = None

    def enter(self, folder: Path) -> None:
        if folder not in self.folders:
            self.folders[folder] = Answers(folder, self.mode)
        self.current = self.folders[folder]

    def write(self) -> None:
        for answers in self.folders.values():
            answers.write()


session = Session()


def install() -> None:
    """Have JAX look for an answer before it compiles."""
    from jax._src.interpreters import pxla

    compile_ = pxla.MeshComputation.compile

    def compile_or_remember(computation, *args, **kwargs):
        answers = session.current
        if answers is None or args or kwargs or not is_plain(computation):
            return compile_(computation, *args, **kwargs)
        program = key_of_program(computation)
        if program is None or answers.mode == "kept" and program not in answers.programs:
            return compile_(computation)
        return Remembered(computation, lambda: compile_(computation), program)

    pxla.MeshComputation.compile = compile_or_remember


def is_plain(computation: Any) -> bool:
    """Whether a program's answer depends on its text and its arguments alone, and is on one device."""
    from jax._src.dtypes import float0
    from jax._src.sharding_impls import UnspecifiedValue

    args = computation.compile_args
    return (
        computation._device_list is not None
        and len(computation._device_list) == 1
        and not any(computation._donated_invars)
        and not any(args[name] for name in ("unordered_effects", "ordered_effects", "host_callbacks", "keepalive", "mut"))
        and not args["shape_poly_state"].uses_dim_vars
        and all(isinstance(s, UnspecifiedValue) for s in (*args["in_shardings"], *args["out_shardings"]))
        and all(getattr(a, "dtype", float0) != float0 for a in (*args["global_in_avals"], *args["global_out_avals"]))
    )


def key_of_program(computation: Any) -> str | None:
    import jaxlib

    text = str(computation.stablehlo())
    if KNOWN_CALLS.search(text):
        return None
    parts = (jaxlib.__version__, flags(), text)
    return b64encode(digest("\n".join(parts).encode())).decode()


@functools.cache
def flags() -> str:
    """Those that XLA read when it started. Processes of `pytest -n` have some of them twice."""
    return " ".join(dict.fromkeys(os.environ.get("XLA_FLAGS", "").split()))


class Remembered:
    """A program of JAX that is compiled when it runs on arguments without an answer, or is asked anything else."""

    def __init__(self, computation: Any, compile_: Any, program: str):
        self.computation = computation
        self.compile = compile_
        self.program = program
        self.compiled = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.real(), name)

    def real(self) -> Any:
        if self.compiled is None:
            self.compiled = self.compile()
        return self.compiled

    def shard_const_args(self, const_args: Sequence[Any]) -> Sequence[Any]:
        return const_args

    def unsafe_call(self, *args: Any) -> Any:
        from jax._src import dispatch

        answers = session.current
        if answers is None or dispatch.needs_check_special():
            return self.real().unsafe_call(*args)
        key = self.program + self.key_of_arguments(args)
        answer = answers.kept.get(key)
        if answers.mode != "renew" and answer is not None and not answers.sampled(key):
            return self.restored(b64decode(answer))
        found = self.real().unsafe_call(*args)
        data = b"".join(map(bytes_of, found))
        if answers.mode == "renew" and len(data) <= LARGEST:
            answers.new[key] = b64encode(data).decode()
        elif answers.mode != "renew" and answer is not None:
            self.assert_same(self.restored(b64decode(answer)), found)
        return found

    def key_of_arguments(self, args: Sequence[Any]) -> str:
        kept = self.computation.compile_args["kept_var_idx"]
        avals = self.computation.compile_args["global_in_avals"]
        kept_args = (x for i, x in enumerate(args) if i in kept)
        return b64encode(digest(b"".join(bytes_of(x, a) for x, a in zip(kept_args, avals, strict=True)))).decode()

    def restored(self, data: bytes) -> list[Any]:
        """The results as JAX returns them."""
        from jax._src import core
        from jax._src.interpreters import pxla
        from jax._src.random.prng import PRNGKeyArray
        from jax.sharding import SingleDeviceSharding

        device = self.computation._device_list[0]
        sharding, results, start = SingleDeviceSharding(device), [], 0
        for aval in self.computation.compile_args["global_out_avals"]:
            physical = core.physical_aval(aval)
            size = math.prod(physical.shape)
            values = np.frombuffer(data, physical.dtype, size, start).reshape(physical.shape)
            committed = self.computation.compile_args["committed"]
            array = pxla.batched_device_put(physical, sharding, [values], [device], committed)
            results.append(array if physical is aval else PRNGKeyArray(aval.dtype._impl, array))
            start += values.nbytes
        assert start == len(data), f"{len(data)} bytes are kept of {start}"
        return results

    def assert_same(self, kept: Sequence[Any], found: Sequence[Any]) -> None:
        """Fail if a kept answer is not JAX's up to rounding, which depends on the machine."""
        for a, b in zip(map(array_of, kept), map(array_of, found), strict=True):
            if not close(a, b):
                name = self.computation._name
                pytest.fail(f"{session.current.file} keeps {a} of {name}; JAX now computes {b}. See CONTRIBUTING.md, Test.")


def close(a: np.ndarray, b: np.ndarray) -> bool:
    if a.dtype.kind in "biu":
        return np.array_equal(a, b)
    if a.dtype.kind == "V":  # bfloat16 and narrower
        a, b = a.astype(np.float32), b.astype(np.float32)
        tolerance = 0.01
    else:
        tolerance = float(np.sqrt(np.finfo(a.dtype).eps))
    finite = np.abs(b[np.isfinite(b)])
    return np.allclose(a, b, tolerance, tolerance * finite.max() if finite.size else 0, equal_nan=True)


def array_of(x: Any) -> np.ndarray:
    return np.asarray(getattr(x, "_base_array", x))


def bytes_of(x: Any, aval: Any = None) -> bytes:
    array = array_of(x)
    return (array if aval is None or array.dtype == aval.dtype or hasattr(x, "_base_array") else array.astype(aval.dtype)).tobytes()
