"""Damaged exported programs: files of real programs, changed at random places, with checksums that hold.

``python mutations.py FIRST COUNT [NAME]`` tries COUNT of them, each in a process that may crash, and prints what was
wrong, one JSON object a line: ``{"seed": 3, "program": "sort", "what": "signal 11"}``.
"""

import collections
import dataclasses
import enum
import json
import os
import random
import resource
import signal
import sys
import traceback

import numpy as np

import mpijax as jax
import mpijax.numpy as jnp
from mpijax import export, lax
from mpijax.core.base.errors import JaxRuntimeError
from mpijax.core.programs.jaxpr import ClosedJaxpr, Eqn, Jaxpr, Literal, Var
from mpijax.core.records.serialize import unpack
from mpijax.core.rules.lowering import InlineJaxpr
from mpijax.core.rules.registry import registry
from mpijax.export import exported as implementation

X = np.linspace(-1, 2, 6, dtype=np.float32).reshape(2, 3)
S = np.eye(3, dtype=np.float32) + 0.1
V = np.arange(4, dtype=np.int32)
# Seconds for one input, and bytes that a process may map beyond what it has.
LIMIT, MEMORY = 20, 4 << 30


def _mapped(f, *out):
    mesh = jax.make_mesh((1,), ("i",))
    return jax.shard_map(f, mesh=mesh, in_specs=jax.P("i"), out_specs=jax.P(*out))


PROGRAMS = {
    "elementwise": (lambda x: jnp.tanh(x) * x + jnp.where(x > 0, x, 1), X),
    "reductions": (lambda x: (x.sum(0), x.max(), jnp.argmin(x, axis=1), jnp.any(x > 0)), X),
    "product": (lambda x: x @ x.T, X),
    "stacked product": (lambda x: jnp.einsum("bij,bjk->bik", x, x), np.ones((2, 3, 3), np.float32)),
    "indexing": (lambda x: x[::-1, [2, 0]].at[0].add(5), X),
    "gather": (lambda x, i: x[i, :2], X, V % 2),
    "scatter": (lambda x, i: jnp.zeros(4).at[i].set(x[:, 1].sum(), mode="drop"), X, V),
    "dynamic": (lambda x, i: lax.dynamic_update_slice(x, lax.dynamic_slice(x, (i[0], 0), (1, 2)), (0, i[1])), X, V),
    "pieces": (lambda x: (jnp.concatenate([x, x], 1)[:, 1:5:2], jnp.pad(x, 1), jnp.split(x, 3, 1), x.T[::-1]), X),
    "stacks": (lambda x: (jnp.stack([x, x], 1), lax.squeeze(x[:1], (0,)), jnp.tile(x, 2), jnp.flip(x, 0)), X),
    "scan": (lambda x: lax.scan(lambda c, row: (c + row, c * row), x[0], x), X),
    "while": (lambda x: lax.while_loop(lambda y: y.sum() < 50, lambda y: y * 2 + 1, x), X),
    "branches": (lambda x: lax.cond(x[0, 0] > 0, lambda y: y * 2, lambda y: -y, x), X),
    "switch": (lambda x, i: lax.switch(i[0], [jnp.sin, jnp.cos, jnp.tanh], x), X, V),
    "loops": (lambda x: lax.fori_loop(0, 3, lambda i, y: y * 2 + i, x), X),
    "calls": (lambda x: jax.jit(lambda y: jax.jit(jnp.sin)(y) * 2)(x) + jax.jit(jnp.cos)(x), X),
    "custom": (lambda x: jax.nn.relu(x) + jax.nn.silu(x) + jax.checkpoint(jnp.sin)(x), X),
    "gradient": (jax.grad(lambda x: jnp.tanh(x @ x.T).sum()), X),
    "sort": (lambda x: (jnp.sort(x, axis=1), jnp.argsort(x, axis=0)), X),
    "sort of several": (lambda x, i: lax.sort((x[0, :2], i[:2], i[2:]), num_keys=2), X, V),
    "top k": (lambda x: lax.top_k(x, 2), X),
    "cumulative": (lambda x: (jnp.cumsum(x, 1), lax.cummax(x, 0), lax.cumlogsumexp(x, 1, reverse=True)), X),
    "windows": (lambda x: lax.reduce_window(x, -np.inf, lax.max, (1, 2), (1, 1), "VALID"), X),
    "convolution": (lambda x: lax.conv(x, x[:, :, :2, :2], (1, 1), "SAME"), np.ones((2, 2, 4, 4), np.float32)),
    "fft": (lambda x: (jnp.fft.rfft(x), jnp.fft.fft2(x), jnp.fft.irfft(x + 0j)), X),
    "linear algebra": (lambda a: (jnp.linalg.cholesky(a), jnp.linalg.solve(a, a), jnp.linalg.det(a)), S),
    "decompositions": (lambda a: jax.tree.leaves((jnp.linalg.qr(a), jnp.linalg.svd(a), jnp.linalg.eigh(a))), S),
    "more algebra": (lambda a: jax.tree.leaves((jax.scipy.linalg.lu(a), jnp.linalg.eig(a), jax.scipy.linalg.schur(a))), S),
    "tridiagonal": (lambda a: lax.linalg.tridiagonal_solve(a[0], a[1], a[2], a), S),
    "random": (lambda x: jax.random.normal(jax.random.split(jax.random.key(1))[0], x.shape) + x, X),
    "random bits": (lambda i: jax.random.bits(jax.random.fold_in(jax.random.key(i[0]), 2), (3,), jnp.uint8), V),
    "gamma": (lambda x: jax.random.gamma(jax.random.PRNGKey(0), jnp.abs(x) + 1), X),
    "dtypes": (lambda x: (x.astype(jnp.bfloat16), x > 0, x.astype(jnp.int8), x + 1j, lax.real(x + 1j)), X),
    "bits": (lambda i: (lax.bitcast_convert_type(i, np.uint8), lax.population_count(i), i << 2, ~i), V),
    "narrow": (lambda i: (i.astype(jnp.int4) + 1, i.astype(jnp.float8_e4m3fn).astype(np.float32)), V),
    "constants": (lambda x: x + np.arange(3, dtype=np.float32) + jnp.ones(3), X),
    "searching": (lambda x, i: (jnp.searchsorted(x[0], x[1]), jnp.bincount(i, length=5), jnp.unique(i, size=2)), X, V),
    "approximate": (lambda x: lax.approx_max_k(x, 2), X),
    "collectives": (_mapped(lambda x: (lax.psum(x, "i"), lax.pmax(x.sum(), "i"))), X),
    "exchanges": (_mapped(lambda x: (lax.all_gather(x, "i"), lax.ppermute(x, "i", [(0, 0)]), lax.all_to_all(
        x, "i", 0, 1, tiled=True), lax.psum_scatter(x, "i", tiled=True)), "i"), X),
    "trees": (lambda a: {"sum": a["x"] + a["y"][0], "none": None}, {"x": X, "y": [X, 2.0]}),
    "sizes with names": (lambda x: (x.sum(0), x.reshape(-1)), None),
    "solve": (lambda a: lax.custom_linear_solve(lambda v: a @ v, a[0], lambda mv, b: b * 2), S),
    "select": (lambda x, i: lax.select_n(i[:2] % 3, x[:, 0], x[:, 1], x[:, 2]), X, V),
    "clamp": (lambda x: (lax.clamp(-0.5, x, 0.5), lax.nextafter(x, x + 1), x**3, lax.integer_pow(x, -2)), X),
    "iota": (lambda x: (lax.broadcasted_iota(np.int32, (2, 3), 1) + x, lax.rev(x, (0, 1)), jnp.tril(S) * x[0]), X),
}  # fmt: skip


def exported(name: str) -> bytes:
    """The file of a program."""
    fun, *args = PROGRAMS[name]
    if args[0] is None:
        args = [jax.ShapeDtypeStruct(export.symbolic_shape("a, b"), np.float32)]
    return bytes(export.export(jax.jit(fun))(*args).serialize())


# ---------------------------------------------------------------- changes

_NUMBERS = (-1, 0, 1, 2, 3, 7, 64, 2**31 - 1, 2**31, 2**40, 2**63 - 1, 2**63, -(2**63), 2**70, 0.5, 1e300, True)
_OTHER = (None, "", "x", [], {}, [[]], ["t"], ["t", 1, 2], ["e"], ["s", 0, 1, None], "float32", "i")
_NAMES = ("float32", "float64", "int8", "int32", "uint8", "uint32", "bool", "complex64", "bfloat16", "int4", "float0")


def _places(tree, found):
    """All (container, key) pairs of a JSON tree."""
    todo = [tree]
    while todo:
        node = todo.pop()
        for key in range(len(node)) if type(node) is list else node:
            found.append((node, key))
            if type(node[key]) in (list, dict):
                todo.append(node[key])
    return found


def _changed(value, rng, places):
    if type(value) in (int, bool, float) and rng.random() < 0.8:
        if type(value) is not float and rng.random() < 0.6:
            return int(value) + rng.choice((-3, -2, -1, 1, 2, 3))
        return rng.choice(_NUMBERS)
    if type(value) is str and rng.random() < 0.7:
        if value in _NAMES:
            return rng.choice(_NAMES)
        return rng.choice(sorted(registry)) if value in registry else rng.choice((*_NAMES, "i", value + "0"))
    if type(value) is list and rng.random() < 0.7:
        kept = list(value)
        if kept:
            i, j = rng.randrange(len(kept)), rng.randrange(len(kept))
            rng.choice((lambda: kept.pop(i), lambda: kept.insert(i, kept[j]), lambda: _swap(kept, i, j)))()
        return kept
    if rng.random() < 0.7:
        node, key = rng.choice(places)
        return json.loads(json.dumps(node[key]))
    return json.loads(json.dumps(rng.choice(_OTHER)))


def _swap(items, i, j):
    items[i], items[j] = items[j], items[i]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """The file with one to three changes, and a checksum that holds."""
    content, tables, blobs = unpack(implementation._MAGIC, data, "a program")
    blobs = [bytearray(b) for b in blobs]
    # Most changes are where programs are; types are few, and decide most.
    roots = rng.choice(([tables["programs"]], [tables["programs"]], [tables["types"]], [content, tables]))
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        if blobs and rng.random() < 0.05:
            blob = rng.choice(blobs)
            if blob:
                blob[rng.randrange(len(blob))] = rng.randrange(256)
            continue
        places = [place for root in roots for place in _places(root, [])]
        node, key = rng.choice(places)
        node[key] = _changed(node[key], rng, places)

    class Written:
        def __init__(self):
            self.blobs = blobs

        def tables(self):
            return tables

    return implementation.pack(implementation._MAGIC, content, Written())


# ---------------------------------------------------------------- changes with types that hold


def retyped(data: bytes, rng: random.Random) -> bytes:
    """The file with changed parameters or argument types, and all types after them as the type rules give them.

    Raises TypeError or ValueError where a type rule refuses the change.
    """
    given = export.deserialize(data)
    closed = given.program
    if isinstance(closed.in_avals[0].shape[0] if closed.in_avals and closed.in_avals[0].shape else 0, int):
        kept = [a if rng.random() < 0.7 else _changed_type(a, rng) for a in closed.in_avals]
    else:
        kept = closed.in_avals
    changed = _rebuilt(closed, kept, rng)
    outs = changed.out_avals
    made = dataclasses.replace(
        given, program=changed, in_avals=tuple(changed.in_avals), out_avals=tuple(outs),
        in_tree=jax.tree.structure((tuple(range(len(kept))), {})), out_tree=jax.tree.structure(tuple(outs)),
        in_shardings=(None,) * len(kept), out_shardings=(None,) * len(outs),
    )  # fmt: skip
    return bytes(implementation._write([made]))


def _rebuilt(given, in_avals, rng):
    """A Jaxpr for other arguments, its equations changed at random."""
    jaxpr = given.jaxpr
    known = {v: Var(a) for v, a in zip(jaxpr.invars, in_avals, strict=True)}
    known.update((v, v) for v in jaxpr.constvars)
    eqns = []
    for eqn in jaxpr.eqns:
        ins = [v if isinstance(v, Literal) else known[v] for v in eqn.invars]
        params = eqn.params
        if rng.random() < 2 / (1 + len(jaxpr.eqns)):
            names = list(params)
            if names and rng.random() < 0.8:
                name = rng.choice(names)
                params = {**params, name: _changed_parameter(params[name], rng)}
            elif ins:
                ins[rng.randrange(len(ins))] = rng.choice((*ins, *known.values()))
        avals = [v.aval for v in ins]
        if isinstance(eqn.primitive.lower, InlineJaxpr) and isinstance(params[eqn.primitive.lower.param], ClosedJaxpr):
            name = eqn.primitive.lower.param
            params = {**params, name: _rebuilt(params[name], avals, rng)}
        out, effects = eqn.primitive.infer(avals, params)
        outs = [Var(a) for a in (out if eqn.primitive.multiple_results else [out])]
        known.update(zip(eqn.outvars, outs, strict=True))
        eqns.append(Eqn(eqn.primitive, ins, outs, params, effects, eqn.source))
    outs = [v if isinstance(v, Literal) else known[v] for v in jaxpr.outvars]
    return ClosedJaxpr(Jaxpr(jaxpr.constvars, [known[v] for v in jaxpr.invars], outs, eqns), given.consts)


def _changed_type(aval, rng):
    shape = list(aval.shape)
    if shape and rng.random() < 0.7:
        shape[rng.randrange(len(shape))] = rng.choice((0, 1, 2, 3, 4, 5, 8, 17))
    elif rng.random() < 0.3:
        shape = shape[1:] if rng.random() < 0.5 else [*shape, 2]
    dtype = np.dtype(rng.choice(_NAMES[:-1])) if rng.random() < 0.3 else aval.dtype
    return aval.update(shape=tuple(shape), dtype=dtype)


def _changed_parameter(value, rng):
    """The parameter with one number in it, or its length, changed."""
    if isinstance(value, ClosedJaxpr):
        return _rebuilt(value, [a if rng.random() < 0.5 else _changed_type(a, rng) for a in value.in_avals], rng)
    if isinstance(value, (tuple, list)) and value and not hasattr(value, "_fields") and rng.random() < 0.9:
        items, i = list(value), rng.randrange(len(value))
        choice = rng.random()
        if choice < 0.7:
            items[i] = _changed_parameter(items[i], rng)
        elif choice < 0.8:
            items.pop(i)
        elif choice < 0.9:
            items.insert(i, items[i])
        else:
            rng.shuffle(items)
        return type(value)(items)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        name = rng.choice(value._fields)
        return value._replace(**{name: _changed_parameter(getattr(value, name), rng)})
    if isinstance(value, bool):
        return not value
    if isinstance(value, enum.Enum):
        return rng.choice(list(type(value)))
    if isinstance(value, np.dtype):
        return np.dtype(rng.choice(_NAMES[:-1]))
    if isinstance(value, int) or value == ():
        small = int(value or 0) + rng.choice((-3, -2, -1, 1, 2, 3))
        return (small,) if value == () else rng.choice((small, small, small, rng.choice(_NUMBERS)))
    return rng.choice((None, 0, "x", (), -1)) if rng.random() < 0.3 else value


# ---------------------------------------------------------------- one input


def _argument(aval):
    if not isinstance(aval.dtype, np.dtype):
        return jax.random.split(jax.random.key(0), aval.size).reshape(aval.shape)
    if aval.dtype.names is not None:
        return np.zeros(aval.shape, aval.dtype)
    return (np.arange(aval.size).reshape(aval.shape) % 3).astype(aval.dtype)


def damaged(data: bytes, seed: int) -> bytes | None:
    """A file made from one that is whole; None where a type rule refuses the change."""
    rng = random.Random(seed)
    if seed % 2:
        return mutated(data, rng)
    try:
        return retyped(data, rng)
    except Exception:
        return None


def attempt(data: bytes | None) -> str:
    """What happens: "refused", "ran", or what is wrong."""
    if data is None:
        return "refused"
    try:
        found = export.deserialize(data)
    except ValueError:
        return "refused"
    except BaseException as error:
        return f"deserialize raised {type(error).__name__}: {error} at {_line(error)}"
    avals = found.in_avals
    if any(not all(type(d) is int for d in a.shape) for a in avals):
        avals = [a.update(shape=tuple(d if type(d) is int else 2 for d in a.shape)) for a in avals]
    if sum(a.nbytes for a in avals) > 1 << 20:
        return "ran"
    args, kwargs = jax.tree.unflatten(found.in_tree, list(map(_argument, avals)))
    texts = []
    try:
        for _ in range(2):
            outs = [np.asarray(jax.random.key_data(x) if jax.dtypes.issubdtype(x.dtype, jax.dtypes.prng_key) else x)
                    for x in jax.tree.leaves(found.call(*args, **kwargs))]  # fmt: skip
            texts.append([x.tobytes() for x in outs])
    except (ValueError, MemoryError, NotImplementedError, FloatingPointError):
        return "ran"
    except JaxRuntimeError as error:
        return "ran" if "RESOURCE_EXHAUSTED" in str(error) or "failed" in str(error) else f"call raised {error}"
    except BaseException as error:
        return f"call raised {type(error).__name__}: {error} at {_line(error)}"
    return "ran" if texts[0] == texts[1] else "two calls differ"


def _line(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    return " < ".join(f"{os.path.basename(f.filename)}:{f.lineno}" for f in frames[:-4:-1])


# ---------------------------------------------------------------- many inputs


def _child(seeds, only, files, write):
    base = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (base + MEMORY, base + MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for seed in seeds:
        rng = random.Random(-seed)
        name = only or rng.choice(sorted(files))
        os.write(write, json.dumps([seed, name]).encode() + b"\n")
        signal.setitimer(signal.ITIMER_REAL, LIMIT)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        what = attempt(damaged(files[name], seed))
        os.write(write, json.dumps([seed, name, what]).encode() + b"\n")
    os._exit(0)


def run(first: int, count: int, only: str | None = None, report=None) -> collections.Counter:
    """Try many; `report(seed, name, what)` hears of those that went wrong. How many were refused, ran, went wrong."""
    files = {name: exported(name) for name in ([only] if only else PROGRAMS)}
    todo, counts = list(range(first, first + count)), collections.Counter()
    while todo:
        read, write = os.pipe()
        pid = os.fork()
        if not pid:
            try:
                os.close(read)
                _child(todo[:200], only, files, write)
            finally:
                os._exit(1)
        os.close(write)
        with os.fdopen(read) as lines:
            said = [json.loads(line) for line in lines if line.endswith("\n")]
        _, status = os.waitpid(pid, 0)
        for seed, name, *what in said:
            if not what:
                todo.remove(seed)
                continue
            counts[what[0] if what[0] in ("refused", "ran") else "wrong"] += 1
            if what[0] not in ("refused", "ran"):
                report(seed, name, what[0])
        if said and len(said[-1]) == 2:
            seed, name = said[-1]
            # A changed loop may have no end.
            died = os.waitstatus_to_exitcode(status)
            counts["endless" if died == -signal.SIGALRM else "wrong"] += 1
            if died != -signal.SIGALRM or os.environ.get("TELL_ENDLESS"):
                report(seed, name, f"the process died: {died}")
        elif not said:
            raise RuntimeError(f"the process died before its first input: {status}")
    return counts


def main() -> None:
    only = sys.argv[3] if len(sys.argv) > 3 else None

    def report(seed, name, what):
        print(json.dumps({"seed": seed, "program": name, "what": what}), flush=True)

    print(dict(run(int(sys.argv[1]), int(sys.argv[2]), only, report)))


if __name__ == "__main__":
    main()
