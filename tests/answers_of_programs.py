"""Programs of JAX: one that it ran before on the same arguments is not compiled again.

JAX traces and lowers as always, so its types, its Jaxprs and its errors are its own. An answer is found by a hash of the
lowered program and one of the arguments, of this version of JAX, its flags and the processor's instructions. What has no
answer is compiled.
"""

from __future__ import annotations

import functools
import math
import os
import platform
import re
from base64 import b64decode, b64encode
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from answers import close, session
from fingerprints import digest

# What a call of any other target does is not in the program's text.
KNOWN_CALLS = re.compile(r"custom_call @(?!lapack_|mhlo\.|chlo\.|Sharding\b)")


def install() -> None:
    """Have JAX look for an answer before it compiles."""
    from jax._src.interpreters import pxla

    compile_ = pxla.MeshComputation.compile

    def compile_or_remember(computation, *args, **kwargs):
        answers = session.current
        if answers is None or args or kwargs or not is_plain(computation):
            return compile_(computation, *args, **kwargs)
        if session.paused and answers.mode != "renew":
            return compile_(computation)
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
    parts = (jaxlib.__version__, flags(), instructions(), text)
    return digest("\n".join(parts).encode())


@functools.cache
def flags() -> str:
    """Those that XLA read when it started. Processes of `pytest -n` have some of them twice."""
    return " ".join(dict.fromkeys(os.environ.get("XLA_FLAGS", "").split()))


@functools.cache
def instructions() -> str:
    """On which the last bits of results depend, and what numbers out of range become: of this processor, sets of them."""
    found = re.search(r"^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text(), re.MULTILINE)
    return " ".join(sorted({"avx", "avx2", "avx512f", "fma"} & set(found[1].split()))) if found else platform.machine()


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
        if session.paused or dispatch.needs_check_special():
            return self.real().unsafe_call(*args)
        key = self.program + self.key_of_arguments(args)
        answer = answers.kept.get(key)
        if answers.mode != "renew" and answer is not None and not answers.sampled(key):
            return self.restored(b64decode(answer))
        found = self.real().unsafe_call(*args)
        data = b"".join(map(bytes_of, found))
        if answers.mode == "renew":
            answers.keep(key, b64encode(data).decode())
        elif answers.mode != "renew" and answer is not None:
            self.assert_same(self.restored(b64decode(answer)), found)
        return found

    def key_of_arguments(self, args: Sequence[Any]) -> str:
        kept = self.computation.compile_args["kept_var_idx"]
        avals = self.computation.compile_args["global_in_avals"]
        kept_args = (x for i, x in enumerate(args) if i in kept)
        return digest(b"".join(bytes_of(x, a) for x, a in zip(kept_args, avals, strict=True)))

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
            array = pxla.batched_device_put(physical, sharding, [values], [device], committed, enable_x64=True)
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


def array_of(x: Any) -> np.ndarray:
    return np.asarray(getattr(x, "_base_array", x))


def bytes_of(x: Any, aval: Any = None) -> bytes:
    array = array_of(x)
    return (array if aval is None or array.dtype == aval.dtype or hasattr(x, "_base_array") else array.astype(aval.dtype)).tobytes()
