"""Exported programs from anybody: whatever is wrong with one is a ValueError, and never a crash."""

import json
import subprocess
import sys

import exported_mutations as mutations
import numpy as np
import pytest

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import export, lax
from mpijax.core.records.serialize import pack, unpack
from mpijax.export import exported as implementation


class _Tables:
    """What `pack` takes in place of a writer."""

    def __init__(self, tables, blobs):
        self._tables, self.blobs = tables, [bytes(b) for b in blobs]

    def tables(self):
        return self._tables


def changed(fun, change, *args):
    """The file of a function, its tables changed, with a checksum that holds."""
    data = export.export(jax.jit(fun))(*args).serialize()
    content, tables, blobs = unpack(implementation._MAGIC, data, "a program")
    change(content, tables)
    return pack(implementation._MAGIC, content, _Tables(tables, blobs))


X = np.ones((4, 8), np.float32)
K = np.arange(4, dtype=np.int32)
OPERATIONS = {
    "sort": (lambda x: jnp.sort(x), X),
    "add": (lambda x: x + x, X),
    "reduce_sum": (lambda x: x.sum(0), X),
    "dot": (lambda x: x @ x.T, X),
    "transpose": (lambda x: x.T, X),
    "gather": (lambda x, i: x[i], X, K),
    "cumsum": (lambda x: jnp.cumsum(x, 0), X),
    "cholesky": (lambda x: jnp.linalg.cholesky(x @ x.T), X),
    "while": (lambda x: lax.while_loop(lambda y: y.sum() < 50, lambda y: y * 2 + 1, x), X),
    "call": (lambda x: jax.jit(jnp.sin)(x) + x, X),
    "fft": (lambda x: jnp.fft.fft(x), X),
}


@pytest.mark.parametrize("label", OPERATIONS)
def test_result_types_that_lie_are_refused(label):
    def lie(content, tables):
        """Results of the last equation, and of the program, are a thousand times larger."""
        at = content["programs"][0]["program"][1]
        program = tables["programs"][at]
        kind = json.loads(json.dumps(tables["types"][program[2][-1][2][0]]))
        kind[1] = [1000 * d for d in kind[1]]
        tables["types"].append(kind)
        program[2][-1][2][0] = len(tables["types"]) - 1
        content["programs"][0]["types"][1] = ["l", ["v", len(tables["types"]) - 1]]

    with pytest.raises(ValueError, match="damaged"):
        export.deserialize(changed(*_one(label, lie)))


def _one(label, change):
    fun, *args = OPERATIONS[label]
    return fun, change, *args


PARAMETERS = {
    "an axis out of bounds": (lambda x: lax.cummax(x, 1), "axis", 7),
    "a key too many": (lambda x: lax.sort(x), "num_keys", 9),
    "a branch less": (lambda x: lax.top_k(x, 2), "k", 2**62),
    "a negative axis": (lambda x: jnp.split(x, 2, 1), "axis", -1),
    "a size too large": (lambda x: lax.iota(np.int32, 3) + 1, "shape", ["t", 2**70]),
    "a permutation that is none": (lambda x: x.T, "permutation", ["t", 1, 1]),
    "a slice from before the start": (lambda x: x[1:], "start_indices", ["t", -5, 0]),
    "sizes of another product": (lambda x: x.reshape(-1), "new_sizes", ["t", 2**40]),
}


@pytest.mark.parametrize("label", PARAMETERS)
def test_parameters_out_of_bounds_are_refused(label):
    fun, name, value = PARAMETERS[label]

    def put(_, tables):
        for program in tables["programs"]:
            for equation in program[2]:
                flat = equation[3]
                if name in flat[::2]:
                    flat[2 * flat[::2].index(name) + 1] = value

    with pytest.raises(ValueError, match="damaged"):
        export.deserialize(changed(fun, put, X))


def _deep(content, _):
    for _ in range(100_000):
        content["programs"][0]["name"] = [content["programs"][0]["name"]]


def _call_bomb(_, tables):
    """Each of forty programs calls the one before twice: a trillion equations in a kilobyte."""
    caller = next(p for p in tables["programs"] if any("jaxpr" in e[3][::2] for e in p[2]))
    at = tables["programs"].index(caller)
    for _ in range(40):
        more = json.loads(json.dumps(caller))
        call = next(e for e in more[2] if "jaxpr" in e[3][::2])
        call[3][2 * call[3][::2].index("jaxpr") + 1] = ["j", len(tables["programs"]) - 1]
        more[2] = [call, call]
        tables["programs"].append(more)
    tables["programs"].append(tables["programs"].pop(at))


FILES = {
    "a dtype of objects": lambda _, tables: tables["types"].__setitem__(0, [["d", "O"], [4, 8]]),
    "a shape of no array": lambda _, tables: tables["types"].__setitem__(0, [["d", "float32"], [2**40, 2**40]]),
    "a hundred axes": lambda _, tables: tables["types"].__setitem__(0, [["d", "float32"], [1] * 100]),
    "a class of the command line": lambda _, tables: tables["records"].append("mpijax.distributed.lines:Lines"),
    "the whole command line": lambda _, tables: tables["records"].append("mpijax.__main__:Main"),
    "no programs": lambda content, _: content["programs"].clear(),
    "calls without end": _call_bomb,
    "a dict with fewer keys than entries": lambda content, _: content["programs"][0].__setitem__(
        "in_tree", ["tuple", None, ["tuple", None, "*"], ["dict", ["l"], "*"]]),
    "an operation that only the compiler applies": lambda _, tables: tables["primitives"].append("sort_rows"),
}  # fmt: skip


@pytest.mark.parametrize("label", FILES)
def test_files_that_ask_for_what_no_program_has_are_refused(label):
    with pytest.raises(ValueError, match="damaged"):
        export.deserialize(changed(lambda x: jax.jit(jnp.sin)(x) + x, FILES[label], X))


def test_sizes_of_arrays_beyond_the_file_are_refused():
    data = bytes(export.export(jax.jit(lambda x: x + np.arange(8, dtype=np.float32)))(X).serialize())
    content, tables, blobs = unpack(implementation._MAGIC, data, "a program")
    written = pack(implementation._MAGIC, content, _Tables(tables, blobs))
    assert export.deserialize(written).call(X).shape == X.shape
    for size in (10**18, -4, 0.5):
        broken = _Tables(tables, blobs)
        broken.blobs = [_Sized(b, size) for b in broken.blobs]
        with pytest.raises(ValueError, match="damaged"):
            export.deserialize(pack(implementation._MAGIC, content, broken))


class _Sized(bytes):
    """Bytes that say another length."""

    def __new__(cls, data, size):
        found = super().__new__(cls, data)
        found.size = size
        return found

    def __len__(self):
        return self.size if isinstance(self.size, int) and self.size >= 0 else 3


def test_missing_parameters_are_told_at_the_call():
    def drop(_, tables):
        for program in tables["programs"]:
            for equation in program[2]:
                if "unroll" in equation[3][::2]:
                    at = 2 * equation[3][::2].index("unroll")
                    del equation[3][at : at + 2]

    data = changed(lambda x: lax.scan(lambda c, row: (c + row, c), x[0], x), drop, X)
    with pytest.raises(ValueError, match="unroll"):
        export.deserialize(data).call(X)


def _wrong(first, count):
    done = subprocess.run(
        [sys.executable, mutations.__file__, str(first), str(count)], capture_output=True, text=True, check=False
    )
    assert not done.returncode, done.stderr
    *wrong, counts = done.stdout.splitlines()
    assert "'ran'" in counts and "'refused'" in counts
    return wrong


def test_damaged_programs_are_refused_or_run():
    assert _wrong(0, 300) == []


@pytest.mark.slow
def test_many_damaged_programs_are_refused_or_run():
    assert _wrong(1_000_000, 30_000) == []

