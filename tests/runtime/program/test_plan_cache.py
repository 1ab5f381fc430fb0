"""Plans on disk: a second process plans nothing, and finds only what was made from an equal program."""

import ctypes
import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from weakref import WeakValueDictionary

import numpy as np
import pytest
from quickly import one_in

import mpijax as jax
import mpijax.numpy as jnp
from mpijax.compiler.backend.disk_cache import DiskCache
from mpijax.compiler.backend.llvm import LLVMError
from mpijax.compiler.steps.plan import KernelCode
from mpijax.compiler.steps.planner import plan_program
from mpijax.core.base import config
from mpijax.core.records.serialize import JaxprWriter, fingerprint
from mpijax.core.rules.registry import registry
from mpijax.runtime.program import code, plan_cache
from mpijax.runtime.program.loader import load_plan


@pytest.fixture
def disk(tmp_path, monkeypatch):
    """A cache of its own, that keeps every plan; kernels already in this process are compiled for it again."""
    folder = tmp_path / "cache"
    folder.mkdir(mode=0o700)
    monkeypatch.setattr(plan_cache, "_disk", lambda: DiskCache(folder, ".plan"))
    monkeypatch.setattr(code, "_disk", lambda: DiskCache(folder))
    for name in ("_kernels", "_files"):
        monkeypatch.setattr(code, name, WeakValueDictionary())
    monkeypatch.setattr(plan_cache, "WORTH", 0)
    return folder


def stored_and_loaded(closed, donated=(), name="f"):
    """The plan as made, and as a later process finds it."""
    entry = plan_cache.entry(closed, donated, ())
    plan = plan_program(closed, donated)
    load_plan(plan, name)
    entry.store(plan)
    return plan, plan_cache.entry(closed, donated, ()).load()


def results(plan, *args):
    return [np.asarray(x) for x in load_plan(plan, "f").run([np.ascontiguousarray(a) for a in args])]


TABLE = np.arange(6, dtype=np.float32).reshape(2, 3)

PROGRAMS = {
    "elementwise": (lambda x: jnp.tanh(x) * x + 1, [(3, 4)]),
    "reduction": (lambda x: jax.nn.softmax(x, axis=0).sum(), [(5, 3)]),
    "two products": (lambda x, y: (x @ y) @ x, [(64, 80), (80, 64)]),
    "constant array": (lambda x: x + TABLE, [(2, 3)]),
    "constant result": (lambda x: (x, jnp.float32(3), TABLE), [(2,)]),
    "argument passed on": (lambda x, y: (y, x + y), [(2,), (2,)]),
    "update in place": (lambda x: x.at[1].set(7.0).at[0].add(x[2]), [(4,)]),
    "gather": (lambda x: x[jnp.array([2, 0, 1])], [(3, 2)]),
    "host call": (lambda x: jnp.sort(x, axis=0), [(9, 2)]),
    "custom rules": (jax.grad(lambda x: jax.nn.relu(x).sum() + jax.nn.silu(x).sum()), [(6,)]),
    "nested calls": (lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) + y)(x) * 2, [(3,)]),
    "keys": (lambda x: jax.random.normal(jax.random.key(3), x.shape) + x, [(4,)]),
    "loop": (lambda x: jax.lax.fori_loop(0, 5, lambda i, y: jnp.sin(y) + i, x), [(3,)]),
    "loop with products": (lambda x: jax.lax.fori_loop(0, 3, lambda i, y: y @ x, x), [(64, 64)]),
    "scan": (lambda x: jax.lax.scan(lambda c, row: (c @ x + row, c.sum()), x[0], x), [(40, 40)]),
    "branches": (lambda x: jax.lax.cond(x[0, 0] > 0, lambda y: jnp.sort(y), lambda y: y @ y, x), [(50, 50)]),
    "while": (lambda x: jax.lax.while_loop(lambda y: y.sum() < 9, lambda y: y * 2 + 1, x), [(3,)]),
    "while for each row": (jax.vmap(lambda x: jax.lax.while_loop(lambda y: y < 9, lambda y: y * y + 1, x)), [(3,)]),
    "applied update": (lambda x: x.at[1].apply(lambda v: v * v + 1), [(4,)]),
    "empty": (lambda x: x * 2, [(0, 3)]),
}


@pytest.mark.parametrize("label", one_in(3, PROGRAMS))
def test_a_plan_comes_back_as_it_was(disk, label):
    fun, shapes = PROGRAMS[label]
    rng = np.random.default_rng(0)
    args = [rng.normal(size=s).astype(np.float32) for s in shapes]
    closed = jax.make_jaxpr(fun)(*args)
    plan, found = stored_and_loaded(closed)
    assert found is not None and found is not plan
    assert found.text() == plan.text()
    assert found.memory() == plan.memory() and list(found.kernels) == list(plan.kernels)
    for was, comes in zip(results(plan, *args), results(found, *args), strict=True):
        np.testing.assert_array_equal(was, comes)


def test_every_kind_of_step_and_every_field_is_kept(disk):
    """Whatever a plan holds but the loop nests, which only people read."""
    closed = jax.make_jaxpr(lambda x, y: jnp.sort((x @ y) * 2, axis=0))(np.ones((64, 64)), np.ones((64, 64)))
    plan, found = stored_and_loaded(closed)
    assert found.instructions == plan.instructions
    assert [replace(b, value=None) for b in found.buffers] == [replace(b, value=None) for b in plan.buffers]
    assert found.results == plan.results and found.in_avals == plan.in_avals
    for (size, was), (same, comes) in zip(plan.largest, found.largest, strict=True):
        assert (size, was.aval, was.element, was.shape, repr(was)) == (
            same, comes.aval, comes.element, comes.shape, repr(comes),
        )  # fmt: skip
        assert (was.producer is None) == (comes.producer is None)
        assert was.producer is None or was.producer.source == comes.producer.source


def key(fun, *args, donated=(), **options):
    closed = jax.make_jaxpr(fun)(*args)
    entry = plan_cache.entry(closed, donated, ())
    return entry and entry.key


def test_keys_tell_programs_apart(disk):
    x, y = np.ones((2, 3), np.float32), np.ones((3, 2), np.float32)
    funs = [lambda x: x * 2, lambda x: x * 3, lambda x: x + 2, lambda x: -(x * 2)]
    keys = [key(f, x) for f in funs] + [key(funs[0], y), key(funs[0], x.astype(np.int32))]
    keys.append(key(funs[0], x, donated=(True,)))
    with config.default_matmul_precision("highest"):
        keys.append(key(funs[0], x))
    assert len(set(keys)) == len(keys) and None not in keys
    assert key(funs[0], x) == keys[0]


def test_a_plan_is_for_any_values_of_its_constants(disk):
    def with_table(table):
        return jax.make_jaxpr(lambda x: x * table + table)(np.ones(3, np.float32))

    first = with_table(np.array([1, 2, 3], np.float32))
    second = with_table(np.array([4, 5, 6], np.float32))
    stored_and_loaded(first)
    found = plan_cache.entry(second, (), ()).load()
    np.testing.assert_array_equal(results(found, np.ones(3, np.float32))[0], [8, 10, 12])
    wide = with_table(np.array([1, 2, 3], np.int32))
    assert plan_cache.entry(wide, (), ()).load() is None


def test_shardings_of_constants_count(disk):
    """What a rank reads of its operands depends on where it is in the mesh of an array that is closed over."""
    x = np.ones((4, 3), np.float32)
    mesh = jax.make_mesh((1,), ("i",))
    split = [jax.device_put(x, jax.NamedSharding(mesh, spec)) for spec in (jax.P("i"), jax.P(None, "i"))]
    keys = {key(lambda z, y=y: z + y, x) for y in (jnp.asarray(x), *split)}
    assert len(keys) == 3


def test_constants_that_are_one_array_differ_from_two(disk):
    a, b = np.ones(3, np.float32), np.ones(3, np.float32)
    x = np.ones(3, np.float32)
    lines = [jax.make_jaxpr(lambda x, p=p, q=q: x * p + q)(x) for p, q in ((a, a), (a, b))]
    first, second = (plan_cache.entry(closed, (), ()).key for closed in lines)
    assert first != second


def test_missing_machine_code_is_a_miss(disk):
    closed = jax.make_jaxpr(lambda x: jnp.cos(x) + 5)(np.ones(3, np.float32))
    _, found = stored_and_loaded(closed)
    assert found is not None
    for file in disk.glob("*.o"):
        file.unlink()
    code._kernels.clear()
    code._files.clear()
    assert plan_cache.entry(closed, (), ()).load() is None


@pytest.mark.parametrize("damage", [lambda data: data[:-5], lambda data: data[:60] + b"x" + data[61:], lambda data: b""])
def test_a_damaged_file_is_a_miss(disk, damage):
    closed = jax.make_jaxpr(lambda x: jnp.cos(x) + 6)(np.ones(3, np.float32))
    assert stored_and_loaded(closed)[1] is not None
    [file] = disk.glob("*.plan")
    file.write_bytes(damage(file.read_bytes()))
    assert plan_cache.entry(closed, (), ()).load() is None


def test_files_are_the_owners_and_whole(disk):
    closed = jax.make_jaxpr(lambda x: jnp.cos(x) + 7)(np.ones(3, np.float32))
    stored_and_loaded(closed)
    [file] = disk.glob("*.plan")
    assert file.stat().st_mode & 0o077 == 0
    assert not list(disk.glob(".new-*"))
    file.chmod(0o666)
    assert plan_cache.entry(closed, (), ()).load() is None


def test_operations_from_outside_are_planned_each_time(disk, monkeypatch):
    """Their rules may change while mpijax's version stays."""
    closed = jax.make_jaxpr(lambda x: jnp.sin(x))(np.ones(3, np.float32))
    assert plan_cache.entry(closed, (), ()) is not None

    def foreign(*args, **params):
        raise AssertionError

    foreign.__module__ = "somebody.elses"
    plan_cache._is_own.cache_clear()
    monkeypatch.setattr(registry["sin"], "type_rule", foreign)
    try:
        assert plan_cache.entry(closed, (), ()) is None
    finally:
        plan_cache._is_own.cache_clear()


def test_what_is_no_data_is_not_kept(disk):
    handle = jax.make_jaxpr(lambda x: jnp.sin(x))(np.ones(3, np.float32))
    handle.jaxpr.eqns[0].params["somebody's handle"] = object()
    assert plan_cache.entry(handle, (), ()) is None


def test_without_a_cache_nothing_is_asked(monkeypatch):
    monkeypatch.setattr(plan_cache, "_disk", lambda: None)
    assert plan_cache.entry(jax.make_jaxpr(jnp.sin)(1.0), (), ()) is None


PROCESS = """
import sys
import numpy as np
import mpijax as jax, mpijax.numpy as jnp
from mpijax import nn
from mpijax.runtime.program import engine, plan_cache

plan_cache._ENVIRONMENT = "the same"  # though files of the checkout may be edited meanwhile
planned = []
original = engine.plan_program
engine.plan_program = lambda *args, **options: planned.append(1) or original(*args, **options)

def loss(w, x):
    return jnp.mean(jnp.sum(nn.log_softmax(nn.relu(x @ w)), axis=-1))

step = jax.jit(jax.value_and_grad(loss))
w, x = np.linspace(-1, 1, 64 * 64, dtype=np.float32).reshape(64, 64), np.ones((32, 64), np.float32)
value, grad = step(w, x)
import json
has_llvm = "libllvmlite" in open("/proc/self/maps").read()
print(json.dumps([len(planned), has_llvm, float(value), float(np.asarray(grad).sum())]))
"""


def processes(count, folder, **environment):
    """What processes that run at once print."""
    env = {**os.environ, "MPIJAX_CACHE_DIR": str(folder), **environment}
    running = [
        subprocess.Popen([sys.executable, "-c", PROCESS], env=env, stdout=subprocess.PIPE, text=True)
        for _ in range(count)
    ]
    return [json.loads(p.communicate(timeout=100)[0]) for p in running]


def test_a_second_process_plans_nothing(tmp_path):
    folder = tmp_path / "cache"
    [first] = processes(1, folder)
    [second] = processes(1, folder)
    assert first[0] > 0 and first[1]
    assert second[0] == 0 and not second[1]
    assert first[2:] == second[2:]


@pytest.mark.slow  # by default tests/compiler/backend has processes that write at once
def test_processes_that_write_at_once(tmp_path):
    folder = tmp_path / "cache"
    alone = processes(1, tmp_path / "other")[0][2:]
    assert all(p[2:] == alone for p in processes(3, folder))
    [after] = processes(1, folder)
    assert after[0] == 0 and after[2:] == alone
    assert not list(Path(folder).glob(".new-*"))


@pytest.mark.slow  # by default one above runs without a cache
def test_the_cache_can_be_turned_off(tmp_path):
    for _ in range(2):
        assert processes(1, tmp_path / "cache", MPIJAX_CACHE="0")[0][0] > 0
    assert not (tmp_path / "cache").exists()


@pytest.mark.slow  # by default the next one names the folder in a program
def test_options_of_jax_name_the_folder(tmp_path):
    for folder in (tmp_path / "named", tmp_path / "other"):
        name = {"JAX_COMPILATION_CACHE_DIR": str(folder)}
        assert [processes(1, tmp_path / "unused", **name)[0][0] > 0 for _ in range(2)] == [True, False]
    assert processes(1, tmp_path / "off", JAX_ENABLE_COMPILATION_CACHE="0")[0][0] > 0
    assert not (tmp_path / "unused").exists() and not (tmp_path / "off").exists()


def test_a_program_names_the_folder(tmp_path):
    from mpijax.experimental.compilation_cache import compilation_cache

    def files(scale):
        compilation_cache.reset_cache()
        jax.jit(lambda x: jnp.tanh(x * scale) @ x)(np.ones((3, 3), np.float32))
        return [len(list((tmp_path / name).glob("*"))) for name in ("one", "two")]

    try:
        compilation_cache.set_cache_dir(tmp_path / "one")
        first = files(1.2345678)
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "two"))
        second = files(2.3456781)
        jax.config.update("jax_enable_compilation_cache", False)
        assert first[0] > 0 == first[1] and second[1] > 0 and second[0] == first[0] and files(3.4567812) == second
    finally:
        jax.config.update("jax_compilation_cache_dir", None)
        jax.config.update("jax_enable_compilation_cache", True)


def test_fingerprints_are_equal_in_every_process():
    script = (
        "import mpijax as jax, mpijax.numpy as jnp, numpy as np\n"
        "from mpijax.core.records.serialize import JaxprWriter, fingerprint\n"
        "f = jax.grad(lambda x: jnp.sum(jax.nn.gelu(x)[::2] * x[1::2]))\n"
        "print(fingerprint(jax.make_jaxpr(f)(np.ones(8, np.float32)), writer=JaxprWriter()))"
    )
    run = [
        subprocess.run(
            [sys.executable, "-c", script], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2")
    ]
    assert run[0] == run[1] and len(run[0]) == 65


def test_constants_by_type_are_not_read():
    closed = jax.make_jaxpr(lambda x: x + TABLE)(np.ones((2, 3), np.float32))
    writer = JaxprWriter("types")
    fingerprint(closed, writer=writer)
    assert [np.shape(c) for c in writer.constants] == [(2, 3)] and not writer.blobs


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_kernels_are_shared_out_among_threads(threads):
    lengths = [300, 10, 1200, 700, 20, 900, 400]
    codes = {f"k{n}": KernelCode("\n" * n, frozenset(), {}) for n in lengths}
    codes |= {name: KernelCode("\n" * 5000, frozenset(), {}, optimize=True) for name in ("loop", "while")}
    optimized, *parts = code._modules(codes, threads)
    assert optimized == ["loop", "while"] and len(parts) == min(threads, 4)
    assert sorted(n for part in parts for n in part) == sorted(set(codes) - {"loop", "while"})
    filled = [sum(int(n[1:]) for n in part) for part in parts]
    assert max(filled) - min(filled) < max(lengths)
    assert code._modules({"k": codes["k20"]}, threads) == [["k"]]


def test_modules_are_compiled_at_once(disk):
    names = [f"k{i:024x}" for i in range(3)]
    codes = {n: KernelCode(f"define i64 @{n}() {{\n  ret i64 {i}\n}}", frozenset(), {}, i == 1) for i, n in enumerate(names)}
    made = code._compile(codes, DiskCache(disk), baseline=False)
    returned = [ctypes.CFUNCTYPE(ctypes.c_int64)(made[n][n])() for n in names]
    assert returned == [0, 1, 2] and len(code.objects_of(made)) == 2
    with pytest.raises(LLVMError, match="invalid LLVM IR"):
        code._compile({"a": replace(codes[names[0]], define="no text"), "b": codes[names[1]]}, None, baseline=False)
