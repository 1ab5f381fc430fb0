"""Exported programs: written, read and called, also by another process; what cannot be written says so."""

import collections
import os
import re
import subprocess
import sys

import jax as theirs
import numpy as np
import pytest
from jax import export as their_export

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import export, lax
from mpijax.core.records.serialize import unpack
from mpijax.export import exported as implementation

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)


def through_bytes(fun, *args, order=0, **kwargs):
    """The exported function as a later process has it."""
    return export.deserialize(export.export(jax.jit(fun))(*args, **kwargs).serialize(vjp_order=order))


Pair = collections.namedtuple("Pair", "left right")
export.register_namedtuple_serialization(Pair, serialized_name="tests.Pair")


@jax.tree_util.register_pytree_node_class
class Labelled:
    """A node with data of its own."""

    def __init__(self, label, value):
        self.label, self.value = label, value

    def tree_flatten(self):
        return (self.value,), self.label

    @classmethod
    def tree_unflatten(cls, label, children):
        return cls(label, *children)


export.register_pytree_node_serialization(
    Labelled, serialized_name="tests.Labelled", serialize_auxdata=str.encode, deserialize_auxdata=bytes.decode
)

FUNCTIONS = {
    "elementwise": lambda x: jnp.tanh(x) * x + 1,
    "reductions": lambda x: (x.sum(0), x.max(), jnp.argmin(x, axis=1)),
    "product": lambda x: x @ x.T,
    "indexing": lambda x: x[::-1, [2, 0]].at[0].add(5),
    "gather and scatter": lambda x: jnp.zeros(4).at[jnp.array([0, 3])].set(x[:, 1], mode="drop"),
    "custom_jvp": lambda x: jax.nn.relu(x) + jax.nn.silu(x),
    "calls": lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) * 2)(x) + jax.jit(jnp.cos)(x),
    "constant array": lambda x: x + np.arange(3, dtype=np.float32) + jnp.ones(3),
    "dtypes": lambda x: (x.astype(jnp.bfloat16), x > 0, x.astype(jnp.int8), x + 1j),
    "keys": lambda x: jax.random.uniform(jax.random.key(1), x.shape) + x,
    "loops": lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2 + i, x),
    "scan": lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x),
    "branches": lambda x: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: -y, x),
    "while": lambda x: lax.while_loop(lambda y: y.sum() < 50, lambda y: y * 2 + 1, x),
    "while for each row": jax.vmap(lambda x: lax.while_loop(lambda y: y.sum() < 50, lambda y: y * y + 1, x)),
    "applied update": lambda x: x.at[1].apply(lambda v: v * v + 1),
    "reshape of turned axes": lambda x: lax.reshape(x, (x.size,), dimensions=(1, 0)),
    "sort": lambda x: jnp.sort(x, axis=1),
    "special numbers": lambda x: jnp.where(x > 0, jnp.inf, jnp.nan) + jnp.float32(-0.0),
    "reduction by a function": lambda x: lax.reduce(x, 0.0, lambda a, b: a + b + a * b, (0,)),
    "nothing": lambda x: (),
}


@pytest.mark.parametrize("label", FUNCTIONS)
@pytest.mark.one_in(3)
def test_a_program_comes_back(label):
    fun = FUNCTIONS[label]
    found = through_bytes(fun, X)
    expected = jax.jit(fun)(X)
    got = found.call(X)
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for e, g in zip(jax.tree.leaves(expected), jax.tree.leaves(got), strict=True):
        assert e.aval == g.aval
        np.testing.assert_array_equal(np.asarray(e), np.asarray(g))


def test_key_arrays_as_arguments_and_constants():
    key = jax.random.key(7)
    found = through_bytes(lambda k: (jax.random.bits(k), jax.random.bits(key), jax.random.fold_in(k, 2)), key)
    assert found.in_avals[0].dtype == key.dtype
    expected = (jax.random.bits(key), jax.random.bits(key), jax.random.fold_in(key, 2))
    for e, g in zip(expected, found.call(key), strict=True):
        assert e.dtype == g.dtype
        as_words = jax.random.key_data if jnp.issubdtype(e.dtype, jax.dtypes.prng_key) else np.asarray
        np.testing.assert_array_equal(as_words(e), as_words(g))


TREES = {
    "dicts and lists": ({"b": X, "a": [X, (X, None)]},),
    "named tuple": (Pair(X, {"k": X}),),
    "custom node": (Labelled("tag", X),),
    "ordered": (collections.OrderedDict(z=X, a=X),),
    "several": (X, (), [X]),
}


@pytest.mark.parametrize("label", TREES)
def test_structures_come_back(label):
    args = TREES[label]
    found = through_bytes(lambda *args, scale: jax.tree.map(lambda x: x * scale, args), *args, scale=np.float32(2))
    got = found.call(*args, scale=np.float32(2))
    assert jax.tree.structure(got) == jax.tree.structure(args) == found.out_tree
    assert found.in_tree == jax.tree.structure((args, {"scale": 0}))
    np.testing.assert_array_equal(np.asarray(jax.tree.leaves(got)[0]), X * 2)


@pytest.mark.parametrize("order", [1, 2])
def test_derivatives_are_those_of_the_function(order):
    """Rules of custom_jvp and custom_vjp functions too, which are Python and are not written."""

    @jax.custom_vjp
    def tripled(x):
        return x * 2

    tripled.defvjp(lambda x: (x * 2, x), lambda x, ct: (ct * 3 * jnp.cos(x),))

    def fun(x, n):
        return {"value": jnp.sum(jax.nn.silu(x) * tripled(x)) + n, "count": n}

    n = np.int32(3)
    found = through_bytes(fun, X, n, order=order)

    def gradient(f):
        return jax.grad(lambda x: f(x, n)["value"])

    wanted, derivative = gradient(fun), gradient(found.call)
    if order == 2:
        wanted, derivative = (jax.grad(lambda x, g=g: jnp.sum(g(x) ** 2)) for g in (wanted, derivative))
    np.testing.assert_allclose(derivative(X), wanted(X), rtol=2e-6, atol=1e-6)
    np.testing.assert_allclose(jax.jit(derivative)(X), wanted(X), rtol=2e-6, atol=1e-6)


def test_the_vjp_is_a_flat_program_as_in_jax():
    def fun(p, n):
        return {"y": p["w"] * 2.0, "n": n + 1}

    args = {"w": X}, np.int32(1)
    ours = export.export(jax.jit(fun))(*args).vjp()
    jaxs = their_export.export(theirs.jit(fun))(*args).vjp()
    assert [(a.shape, str(a.dtype)) for a in ours.in_avals] == [(a.shape, str(a.dtype)) for a in jaxs.in_avals]
    assert [(a.shape, str(a.dtype)) for a in ours.out_avals] == [(a.shape, str(a.dtype)) for a in jaxs.out_avals]
    assert str(ours.in_tree) == str(jaxs.in_tree) and str(ours.out_tree) == str(jaxs.out_tree)


def test_without_derivatives_there_are_none():
    found = through_bytes(jnp.sin, X)
    assert not found.has_vjp()
    with pytest.raises(ValueError, match=r"No VJP is available.*vjp_order=1"):
        found.vjp()
    with pytest.raises(ValueError, match="No VJP is available"):
        jax.grad(lambda x: found.call(x).sum())(X)
    once = through_bytes(jnp.sin, X, order=1)
    assert once.has_vjp() and not once.vjp().has_vjp()


def test_calls_inside_of_other_functions():
    found = through_bytes(lambda x: jnp.sin(x) + 1, X)
    assert "sin" in str(jax.make_jaxpr(lambda x: found.call(x) * 2)(X))
    np.testing.assert_allclose(jax.jit(lambda x: found.call(x * 2))(X), np.sin(X * 2) + 1, rtol=1e-6)
    stacked = jax.vmap(found.call)(np.stack([X, X + 1]))
    np.testing.assert_allclose(stacked, np.sin(np.stack([X, X + 1])) + 1, rtol=1e-6)
    again = export.deserialize(export.export(jax.jit(lambda x: found.call(x) * 3))(X).serialize())
    np.testing.assert_allclose(again.call(X), (np.sin(X) + 1) * 3, rtol=1e-6)


FIELDS = "fun_name nr_devices platforms ordered_effects unordered_effects disabled_safety_checks module_kept_var_idx"


def test_what_is_known_of_a_program_is_as_in_jax():
    def fun(a, *, b):
        return [a + b, a.sum()]

    spec, their_spec = (j.ShapeDtypeStruct((2, 3), np.float32) for j in (jax, theirs))
    ours = export.export(jax.jit(fun))(spec, b=spec)
    jaxs = their_export.export(theirs.jit(fun))(their_spec, b=their_spec)
    for name in FIELDS.split():
        assert getattr(ours, name) == getattr(jaxs, name), name
    for name in ("in_avals", "out_avals", "in_tree", "out_tree"):
        assert str(getattr(ours, name)) == str(getattr(jaxs, name)), name
    assert str(ours) == str(jaxs) and type(ours.serialize()) is bytearray
    assert ours.has_vjp() and isinstance(ours.mlir_module_serialized, bytes)
    text = ours.mlir_module()
    assert "reduce_sum" in text and "program: 2 arguments, 2 results" in text


def test_a_file_has_no_weak_types_as_in_jax():
    made = export.export(jax.jit(lambda x: (x * 2, jnp.asarray(x, "float32"))))(1.0)
    read = export.deserialize(made.serialize(vjp_order=1))
    for found, weak in ((made, [True, False]), (read, [False, False])):
        assert [a.weak_type for a in found.out_avals] == [x.weak_type for x in found.call(1.0)] == weak
    assert not any(a.weak_type for a in read.in_avals)


def test_the_names_are_jaxs():
    """And those that JAX has added since."""
    assert set(export.__all__) - {"symbolic_dim_bounds"} == set(their_export.__all__)


def test_static_arguments_are_part_of_the_program():
    found = export.export(jax.jit(lambda x, n: x * n, static_argnums=1))(X, 3)
    np.testing.assert_array_equal(export.deserialize(found.serialize()).call(X), X * 3)


WRONG_CALLS = {
    "more arguments": (lambda f: f(X, X), "same pytree structure as when the function"),
    "keyword": (lambda f: f(X, y=X), "same pytree structure"),
    "rank": (lambda f: f(X[0]), r"Rank mismatch for args\[0\].*f32\[2,3\].*f32\[3\]"),
    "shape": (lambda f: f(X[:1]), r"Shape mismatch for args\[0\].shape\[0\].*f32\[2,3\].*f32\[1,3\]"),
    "dtype": (lambda f: f(X.astype(np.int32)), r"Dtype mismatch for args\[0\].*f32\[2,3\].*i32\[2,3\]"),
}


@pytest.mark.parametrize("label", WRONG_CALLS)
def test_calls_that_do_not_fit(label):
    call, message = WRONG_CALLS[label]
    jaxs = their_export.export(theirs.jit(lambda x: x + 1))(X)
    with pytest.raises(ValueError):
        call(jaxs.call)
    found = through_bytes(lambda x: x + 1, X)
    with pytest.raises(ValueError, match=message):
        call(found.call)


def test_functions_that_are_not_jitted():
    with pytest.raises(ValueError, match="Function to be exported must be the result of `jit`"):
        export.export(jnp.tanh.__call__)(X)


def test_functions_of_the_library_are_jitted_as_in_jax():
    np.testing.assert_allclose(export.export(jnp.sin)(X).call(X), np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(export.export(jax.nn.relu)(X).call(X), X.clip(0), rtol=1e-6)


def test_versions_of_files():
    highest = export.maximum_supported_calling_convention_version
    name, jitted = "jax_export_calling_convention_version", jax.jit(jnp.sin)
    try:
        for version in (export.minimum_supported_calling_convention_version - 1, highest + 1):
            jax.config.update(name, version)
            with pytest.raises(ValueError, match=f"version {version} is outside the range of supported versions"):
                export.export(jitted)(X)
    finally:
        jax.config.update(name, highest)
    assert export.export(jitted)(X).calling_convention_version == highest


def test_closing_over_traced_values():
    def outer(y):
        return export.export(jax.jit(lambda x: x + y))(X).call(X)

    with pytest.raises(ValueError, match="closes over values of an enclosing transformation"):
        jax.jit(outer)(X)


def test_python_callbacks_are_named():
    def fun(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(NotImplementedError, match="cannot be serialised.*mpijax.numpy"):
        export.export(jax.jit(fun))(X)


def test_moves_to_a_device_come_back():
    """A device is this process's device of the same number, so the file does not depend on the process."""
    first = jax.local_devices()[0]
    found = export.deserialize(export.export(jax.jit(lambda x: jax.device_put(x, first) + 1))(X).serialize())
    np.testing.assert_array_equal(found.call(X), X + 1)
    assert f"devices=({first!r},)" in found.mlir_module()


def test_nodes_of_types_that_are_not_registered():
    Other = collections.namedtuple("Other", "a b")
    found = export.export(jax.jit(lambda p: p.a + p.b))(Other(X, X))
    with pytest.raises(ValueError, match=r"Cannot serialize .*unregistered type .*Other.*register_namedtuple_serial"):
        found.serialize()
    as_bytes = {"serialize_auxdata": lambda aux: b"", "deserialize_auxdata": lambda data: None}
    with pytest.raises(ValueError, match="If `from_children` is not present.* must call.*register_pytree_node"):
        export.register_pytree_node_serialization(Other, serialized_name="tests.Other", **as_bytes)


@jax.tree_util.register_pytree_node_class
class Described:
    """An array with a word for each of its elements."""

    def __init__(self, array, words):
        assert array.shape == (len(words),)
        self.array, self.words = array, words

    def tree_flatten(self):
        return (self.array,), self.words

    @classmethod
    def tree_unflatten(cls, words, children):
        return cls(*children, words)


def test_nodes_are_read_with_the_types_of_their_leaves():
    export.register_pytree_node_serialization(
        Described, serialized_name="tests.Described",
        serialize_auxdata=lambda words: "/".join(words).encode(),
        deserialize_auxdata=lambda data: tuple(data.decode().split("/")),
    )  # fmt: skip
    args = [{"b": Described(X[0], ("u", "v", "w")[: X.shape[1]])}, X, Pair(Described(X[:, 0], ("s",) * len(X)), X)]
    found = export.deserialize(export.export(jax.jit(lambda tree: tree))(args).serialize())
    out = found.call(args)
    assert out[0]["b"].words == args[0]["b"].words and found.in_tree == jax.tree.structure(((args,), {}))
    np.testing.assert_array_equal(out[2][0].array, X[:, 0])


def test_registering_twice():
    with pytest.raises(ValueError, match="Duplicate serialization registration for type"):
        export.register_namedtuple_serialization(Pair, serialized_name="tests.another")
    with pytest.raises(ValueError, match="Duplicate serialization registration for serialized_name"):
        export.register_namedtuple_serialization(
            collections.namedtuple("Third", "a"), serialized_name="tests.Pair"
        )
    with pytest.raises(ValueError, match="Use .*register_pytree_node_serialization"):
        export.register_namedtuple_serialization(Labelled, serialized_name="tests.x")


def test_platforms():
    found = export.export(jax.jit(jnp.sin), platforms=("tpu",))(X)
    with pytest.raises(ValueError, match=r"exported for platforms \('tpu',\) but it is used on 'cpu'"):
        export.deserialize(found.serialize()).call(X)
    several = export.export(jax.jit(jnp.sin), platforms=("tpu", "cpu"))(X)
    np.testing.assert_allclose(export.deserialize(several.serialize()).call(X), np.sin(X), rtol=1e-6)
    check = export.DisabledSafetyCheck.platform()
    free = export.export(jax.jit(jnp.sin), platforms=("tpu",), disabled_checks=[check])(X)
    np.testing.assert_allclose(export.deserialize(free.serialize()).call(X), np.sin(X), rtol=1e-6)
    assert export.export(jax.jit(jnp.sin), platforms=("cpu", "abacus"))(X).platforms == ("cpu", "abacus")
    assert export.default_export_platform() == "cpu"
    named = export.DisabledSafetyCheck.custom_call("f")
    assert named.is_custom_call() == "f" and check.is_custom_call() is None and named != check
    assert {check} == {export.DisabledSafetyCheck.platform()}


# ---------------------------------------------------------------- bytes that are not what they should be

BLOB = bytes(export.export(jax.jit(lambda x: jnp.sin(x) + 1))(X).serialize())
DAMAGED = {
    "cut": (BLOB[:-7], "damaged"),
    "altered": (BLOB[:70] + bytes([BLOB[70] ^ 1]) + BLOB[71:], "damaged"),
    "longer": (BLOB + b"x", "damaged"),
    "another version": (BLOB.replace(b"export-1", b"export-7"), r"format 'mpijax-export-7'.*reads 'mpijax-export-1'"),
    "something else": (b"\x80\x04\x95 a pickle" * 9, "not an exported program"),
    "nothing": (b"", "not an exported program"),
}


@pytest.mark.parametrize("label", DAMAGED)
def test_damaged_bytes(label):
    data, message = DAMAGED[label]
    with pytest.raises(ValueError, match=message):
        export.deserialize(data)


def rewritten(change):
    """A file with another header and a checksum that holds."""
    import hashlib
    import json

    magic = implementation._MAGIC
    content, tables, blobs = unpack(magic, BLOB, "")
    change(content, tables)
    header = json.dumps([content, tables, [len(b) for b in blobs]]).encode()
    body = len(header).to_bytes(8, "little") + header + b"".join(blobs)
    return magic + hashlib.sha256(magic + body).digest() + body


def test_a_file_cannot_name_classes_or_functions_to_call(monkeypatch):
    """Records are mpijax's own; a name of anything else is refused before it is looked up."""
    called = []
    monkeypatch.setattr(os, "system", called.append)
    for name in ("os:system", "subprocess:Popen", "mpijax.runtime.machine.blas:load", "mpijax.core.programs.jaxpr:Jaxpr"):
        data = rewritten(lambda content, tables, name=name: tables["records"].append(name))
        with pytest.raises(ValueError, match="not a record"):
            export.deserialize(data)
    assert not called


def test_operations_that_this_version_does_not_have():
    def change(content, tables):
        tables["primitives"] = ["does_not_exist" for _ in tables["primitives"]]

    with pytest.raises(ValueError, match="does_not_exist"):
        export.deserialize(rewritten(change))


def test_lines_of_the_user_are_kept():
    found = through_bytes(lambda x: jnp.sin(x), X)
    assert found.program.eqns[0].source.file == __file__


def test_64_bit_programs_load_where_64_bits_are_off():
    with jax.enable_x64(True):
        made = export.export(jax.jit(lambda x: x * 2 + 1))(jax.ShapeDtypeStruct((2,), np.float64))
        blob = made.serialize()
    found = export.deserialize(blob)
    assert str(found.in_avals[0]) == "float64[2]"
    with jax.enable_x64(True):
        got = found.call(np.array([1e-12, 3.0]))
    assert got.dtype == np.float64 and float(got[0]) == 1 + 2e-12


LOADER = """
import sys
import numpy as np
from mpijax import export
found = export.deserialize(open(sys.argv[1], "rb").read())
out = found.call(np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3))
np.save(sys.argv[2], np.asarray(out))
"""


def test_another_process_loads_it(tmp_path):
    def fun(x):
        return jax.nn.gelu(x) @ jnp.ones((3, 2)) + lax.scan(lambda c, r: (c + r, c), x[0], x)[0][:2]

    path = tmp_path / "program.bin"
    path.write_bytes(export.export(jax.jit(fun))(X).serialize())
    env = {**os.environ, "PYTHONHASHSEED": "5"}
    subprocess.run([sys.executable, "-c", LOADER, path, tmp_path / "out.npy"], env=env, check=True, timeout=60)
    np.testing.assert_array_equal(np.load(tmp_path / "out.npy"), np.asarray(jax.jit(fun)(X)))


def test_messages_name_the_operation_and_its_line():
    def fun(x):
        return jax.pure_callback(np.sin, jax.ShapeDtypeStruct(x.shape, x.dtype), x)

    with pytest.raises(NotImplementedError) as caught:
        export.export(jax.jit(fun))(X)
    assert re.search(r"pure_callback at .*test_export\.py:\d+", str(caught.value))
