"""What users do wrong: mpijax raises JAX's class of error, which says the same as JAX's."""

from collections import namedtuple
from functools import partial
from importlib import import_module

import numpy as np
import pytest
from oracle import OURS, THEIRS

X3 = np.arange(3, dtype=np.float32)
IN_BOTH = (THEIRS, OURS)


def raised(library, call):
    with pytest.raises(Exception) as caught:
        call(library)
    return caught.value


def check(call, phrase: str, libraries=IN_BOTH):
    """Both libraries raise an error of one class, and both say `phrase`."""
    errors = [raised(library, call) for library in libraries]
    assert len({type(e).__name__ for e in errors}) == 1, [repr(e) for e in errors]
    for library, error in zip(libraries, errors, strict=True):
        assert phrase in str(error), f"{library.name}: {error}"
    return errors[-1]


def leaked_from(transform):
    """A value stored by a transformed function, and used after it has returned."""

    def call(J):
        stored = []
        transform(J)(lambda x: stored.append(x * 2) or x)
        return stored[0] + 1

    return call


Pair = namedtuple("Pair", "left right")


def _split(J):
    """An array whose type says that a mesh axis splits it."""
    mesh = J.make_mesh((1,), ("i",), axis_types=(J.sharding.AxisType.Explicit,))
    return J.device_put(np.ones((2, 2)), J.NamedSharding(mesh, J.P("i")))


def with_jvp_rule(rule):
    def call(J):
        f = J.custom_jvp(lambda x: x * 2)
        f.defjvp(rule)
        return J.jvp(f, (1.0,), (1.0,))

    return call


def _with_vmap_rule(J):
    f = J.custom_batching.custom_vmap(lambda x: x * 2)
    f.def_vmap(lambda size, batched, x: (x * 2, batched[0]))
    return f


def with_vjp_rules(fwd, bwd):
    def call(J):
        f = J.custom_vjp(lambda x, y: x * y)
        f.defvjp(fwd, bwd)
        return J.grad(f)(1.0, 2.0)

    return call


def jit(f, *args, **options):
    return lambda J: J.jit(f, **options)(*args)


TRACERS = {
    "if": (
        jit(lambda x: 1 if x > 0 else 2, 1.0),
        "Attempted boolean conversion of traced array with shape bool[]",
    ),
    "and": (jit(lambda x: x > 0 and x < 2, 1.0), "depends on the value of the argument x"),
    "bool of an array": (
        jit(lambda x: bool(x), X3),
        "The truth value of an array with more than one element",
    ),
    "float": (jit(lambda x: float(x), 1.0), "try using `x.astype(float)`"),
    "int": (jit(lambda x: int(x), 1.0), "The problem arose with the `int` function"),
    "complex": (
        jit(lambda x: complex(x), 1.0),
        "Abstract tracer value encountered where concrete value is expected",
    ),
    "float of an array": (
        jit(lambda x: float(x), X3),
        "Only scalar arrays can be converted to Python scalars",
    ),
    "numpy": (
        jit(lambda x: np.sin(x), X3),
        "conversion method __array__() was called on traced array with shape float32[3]",
    ),
    "range": (
        jit(lambda n: list(range(n)), 3),
        "The __index__() method was called on traced array with shape int32[]",
    ),
    "list index": (jit(lambda n: [1, 2, 3][n], 1), "depends on the value of the argument n"),
    "item": (jit(lambda x: x.item(), 1.0), "The error occurred while tracing the function <lambda>"),
    "several arguments": (jit(lambda x, y: float(x + y["a"]), 1.0, {"a": 2.0}), "the arguments x and y['a']"),
    "shape": (
        lambda J: J.jit(lambda n: J.numpy.zeros(n))(3),
        "Shapes must be 1D sequences of concrete values",
    ),
    "argument that a shape depends on": (
        lambda J: J.jit(lambda n, m: J.numpy.ones(6).reshape(m - 1, 2))(3, 4),
        "depends on the value of the argument m",
    ),
    "no argument": (
        lambda J: J.jit(lambda: sum(J.numpy.add(1, 1) for _ in range(2)) > 0 or 1)(),
        "due to JAX operations on these lines",
    ),
    "turn of a loop": (
        lambda J: J.lax.fori_loop(0, 3, lambda i, c: c if i else c, 1.0),
        "the value of the argument i",
    ),
    "carry of a loop": (
        lambda J: J.jit(lambda n: J.lax.fori_loop(0, n, lambda i, c: c if c["a"] else c, {"a": 1}))(3),
        "the value of the argument c['a']",
    ),
    "element of a map": (lambda J: J.lax.map(lambda x: x if x[0] else x, (X3,)), "the argument x[0]"),
    "boolean index": (jit(lambda x: x[x > 0], X3), "Array boolean indices must be concrete; got bool[3]"),
    "assignment": (jit(lambda x: x.__setitem__(0, 1.0), X3), "use x = x.at[idx].set(y)"),
    "hash": (jit(lambda x: {x: 1}, 1.0), "unhashable type"),
    "iteration": (jit(lambda x: list(x), 1.0), "iteration over a 0-d array"),
    "format": (jit(lambda x: f"{x:.2f}", 1.0), "unsupported format string passed to"),
    "leaked from jit": (
        leaked_from(lambda J: lambda f: J.jit(f)(1.0)),
        "an intermediate value with type float32[]",
    ),
    "leaked from jit, where it was made": (
        leaked_from(lambda J: lambda f: J.jit(f)(1.0)),
        "The leaked intermediate value was created on line",
    ),
    "leaked from grad": (leaked_from(lambda J: lambda f: J.grad(f)(1.0)), "Encountered an unexpected tracer"),
    "leaked from vmap": (leaked_from(lambda J: lambda f: J.vmap(f)(X3)), "explicitly return their outputs"),
}


class _NoSignature:
    __signature__ = "nothing that Python knows"

    def __call__(self, x):
        return x


CALLS = {
    "not callable": (lambda J: J.jit(3), "Expected a callable value, got 3"),
    "generator": (lambda J: J.jit(lambda x: (yield x)), "Expected a function, got a generator function"),
    "generator, decorated": (
        lambda J: J.jit(static_argnums=0)(lambda x: (yield x)),
        "Expected a function, got a generator function",
    ),
    "class method, decorated": (
        lambda J: J.jit(static_argnums=0)(classmethod(lambda c, x: x)),
        "Expected a callable value, got <classmethod",
    ),
    "no array": (jit(lambda x: x, {"a": object()}), "passed to the function at path x['a']"),
    "no array result": (
        jit(lambda x: (x, [len]), 1.0),
        "at output component [1][0], which is not a valid JAX type",
    ),
    "unhashable static": (jit(lambda x, n: x, 1.0, [1], static_argnums=1), "Non-hashable static arguments"),
    "static position": (
        lambda J: J.jit(lambda x: x, static_argnums=3),
        "but only accepts 1 positional arguments",
    ),
    "static name": (
        lambda J: J.jit(lambda x: x, static_argnames="q"),
        "has invalid argnames {'q'} in static_argnames",
    ),
    "static and donated": (
        lambda J: J.jit(lambda x: x, static_argnums=0, donate_argnums=0),
        "static_argnames and donate_argnames cannot intersect",
    ),
    "static and donated names": (
        lambda J: J.jit(lambda x: x, static_argnames="x", donate_argnames="x"),
        "static_argnames and donate_argnames cannot intersect",
    ),
    "name of an argument without one": (
        lambda J: J.jit(lambda x, /, y: x, static_argnames=("x", "y")),
        "argnames {'x'} in static_argnames. These are positional-only",
    ),
    "name of all further arguments": (
        lambda J: J.jit(lambda x, *rest, **named: x, donate_argnames="rest"),
        "argnames {'rest'} in donate_argnames",
    ),
    "name of a donated argument without a signature": (
        lambda J: J.jit(_NoSignature(), donate_argnames="x"),
        "failed. Pass donate_argnums instead of donate_argnames.",
    ),
    "sharding of a traced value": (
        jit(lambda x: x.sharding, 1.0),
        "attribute is not available on traced array with shape float32[]. To query sharding information on tracers, "
        "use",
    ),
    "shards of a traced value": (
        jit(lambda x: x.addressable_shards, 1.0),
        "The 'addressable_shards' attribute is not available on traced array with shape float32[]",
    ),
    "devices of a traced value": (
        lambda J: J.vmap(lambda x: x.devices())(X3),
        "The devices() method was called on traced array with shape float32[]",
    ),
    "wait for a traced value": (
        jit(lambda x: x.block_until_ready(), 1.0),
        "The 'block_until_ready' method is not available on traced array with shape float32[]",
    ),
    "copy of a traced value": (
        jit(lambda x: x.copy_to_host_async(), 1.0),
        "The 'copy_to_host_async' method is not available on traced array with shape float32[]",
    ),
    "deleted traced value": (jit(lambda x: x.is_deleted(), 1.0), "The is_deleted() method was called on traced array"),
    "place of a traced value": (
        lambda J: J.grad(lambda x: x.is_fully_replicated)(1.0),
        "The is_fully_replicated property was called on traced array with shape float32[]",
    ),
    "too large an int": (jit(lambda d: d, {"a": [1, 2**31]}), ", whose argument path is d['a'][1]. "),
    "too large an int by name": (lambda J: J.jit(lambda x: x)(x=-(2**40)), "An overflow was encountered while parsing an argument to "),
    "staticmethod": (lambda J: J.jit(staticmethod(lambda x: x)), "staticmethod arguments are not supported"),
    "static without ==": (
        lambda J: _call_twice(J, _Incomparable),
        "static arguments should be comparable using __eq__",
    ),
    "aliased and donated": (
        lambda J: J.device_put(X3, may_alias=True, donate=True),
        "may_alias and donate cannot be True at the same time",
    ),
    "put on a word": (lambda J: J.device_put(X3, "cpu"), "Received invalid value: "),
    "devices, too late": (
        lambda J: (J.devices(), J.config.update("jax_num_cpu_devices", 2)),
        "jax_num_cpu_devices config should be updated before backends are initialized",
    ),
    "compiler option": (
        lambda J: J.jit(lambda x: x, compiler_options={"xla_embed_ir_in_executable": True, "fast": True})(1.0),
        "No such compile option: 'fast'",
    ),
    "donated and used": (
        lambda J: _donating(J, 0)(*[J.numpy.ones(4)] * 2),
        "Attempt to use a buffer that was previously donated in the same call",
    ),
    "used and donated": (
        lambda J: _donating(J, 1)(*[J.numpy.ones(4)] * 2),
        "Attempt to donate a buffer which is also used by the same call",
    ),
    "donated twice in a call": (
        lambda J: _donating(J, (0, 1))(*[J.numpy.ones(4)] * 2),
        "Attempt to donate the same buffer twice",
    ),
    "misspelt compiler option": (
        lambda J: J.jit(lambda x: x, compiler_options={"xla_cpu_fast_math": True})(1.0),
        "No such compile option: 'xla_cpu_fast_math'",
    ),
    "compiler option of another type": (
        # The function is no other test's: JAX would look for it among its stored programs first, and warn.
        lambda J: J.jit(lambda x: x * 253.0).lower(1.0).compile({"xla_dump_max_hlo_modules": "1", "xla_dump_hlo_as_text": "on"}),
        "While setting option xla_dump_hlo_as_text, 'on' is not a valid bool value",
    ),
    "operand that is no array": (
        lambda J: J.jit(lambda x: J.lax.add(x, np.array("hello")))(X3),
        "Error interpreting argument to add as a JAX value. The problematic value is of type <class 'numpy.ndarray'> "
        "and was passed to add at position 1.",
    ),
    "compiler option inside": (
        lambda J: J.jit(J.jit(lambda x: x, compiler_options={"xla_embed_ir_in_executable": True}))(1.0),
        "`compiler_options` can only be passed to top-level `jax.jit`",
    ),
    "compiled for no device": (
        lambda J: J.jit(lambda x: x).lower(1.0).compile(device_assignment=(*J.devices(), *J.devices())),
        "device_assignment passed to `.compile` must match the device_assignment calculated from array shardings",
    ),
    "shardings in a namedtuple": (
        lambda J: J.jit(lambda x: x, in_shardings=Pair(None, None))(Pair(1.0, 2.0)),
        "in_shardings is not a tuple",
    ),
    "sum along the flattened axes of a split array": (
        lambda J: J.numpy.cumsum(_split(J)), "The input should be fully replicated when axis is not specified to cumsum"
    ),
    "permutation of a wrong size": (
        lambda J: J.vmap(lambda x: J.lax.pshuffle(x, "i", [1, 1, 2]), axis_name="i")(X3),
        "`perm` does not represent a permutation: [1, 1, 2]",
    ),
    "compiled: structure": (
        lambda J: J.jit(lambda x: x).lower(1.0).compile()([1.0]),
        "compiled with input pytree does not match the input pytree it was called with",
    ),
    "compiled: types": (lambda J: _compiled_for_floats(J)(X3), "'x' compiled with float32[] and called with float32[3]"),
    "compiled: vmap": (
        lambda J: J.vmap(_compiled_for_floats(J))(X3),
        "Cannot apply JAX transformations to a function lowered and compiled for a particular signature",
    ),
    "abstract evaluation": (
        lambda J: _with_types(J, lambda x: [x])(1.0),
        "odd.abstract_eval() method should return a tuple or a list iff odd.multiple_results",
    ),
    "missing argument": (lambda J: J.jit(lambda x: x)(), "missing 1 required positional argument: 'x'"),
    "switch: structures": (
        lambda J: J.lax.switch(0, [lambda: (1, 2), lambda: 3]),
        "branch1 output is a pytree leaf",
    ),
    "switch: types": (
        lambda J: J.lax.switch(0, [lambda: X3, lambda: 3.0]),
        "the corresponding output of branch1 has type float32[]",
    ),
    "platform_dependent": (
        lambda J: J.lax.platform_dependent(1.0, tpu=lambda x: x),
        "not found for platform cpu",
    ),
    "associative_scan": (
        lambda J: J.lax.associative_scan(3, X3),
        "lax.associative_scan: fn argument should be callable",
    ),
    "associative_scan of two sizes": (
        lambda J: J.lax.associative_scan(lambda x, y: x, (J.numpy.ones(3), J.numpy.ones(4))),
        "Array inputs to associative_scan must have the same first dimension. (saw: [(3,), (4,)])",
    ),
    "number too large": (jit(lambda x: x, 2**40), "1099511627776"),
    "donated twice": (lambda J: _use_twice(J), "Array has been deleted with shape=float32[3]"),
    "shapes": (
        lambda J: J.numpy.ones(3) + J.numpy.ones(4),
        "incompatible shapes for broadcasting: (3,), (4,)",
    ),
    "unknown option": (lambda J: J.config.update("jax_foo", 1), "Unrecognized config option: jax_foo"),
    "unbound axis": (lambda J: J.jit(lambda x: J.lax.psum(x, "i"))(X3), "unbound axis name: i"),
}

DERIVATIVES = {
    "integers": (lambda J: J.grad(lambda x: x * 2.0)(1), "grad requires real- or complex-valued inputs"),
    "vector": (lambda J: J.grad(lambda x: x)(X3), "scalar-output functions. Output had shape: (3,)"),
    "tuple": (lambda J: J.grad(lambda x: (x, x))(1.0), "Gradient only defined for scalar-output functions"),
    "complex result": (lambda J: J.grad(lambda x: x * 1j)(1.0), "pass holomorphic=True"),
    "integer result": (lambda J: J.grad(lambda x: x > 0)(1.0), "grad requires real-valued outputs"),
    "holomorphic of reals": (
        lambda J: J.grad(lambda x: x, holomorphic=True)(1.0),
        "inputs with complex dtype",
    ),
    "too few arguments": (
        lambda J: J.grad(lambda x: x, argnums=2)(1.0),
        "requires at least 3 positional arguments",
    ),
    "negative argnums": (
        lambda J: J.grad(lambda x: x, argnums=-2)(1.0),
        "greater than or equal to -len(args)",
    ),
    "aux": (lambda J: J.grad(lambda x: x, has_aux=True)(1.0), "aux output to return a two-element tuple"),
    "no array": (lambda J: J.grad(lambda x: x)("a"), "not a valid JAX type"),
    "jvp of arrays": (
        lambda J: J.jvp(lambda x: x, X3, X3),
        "must be tuples or lists; found ndarray and ndarray",
    ),
    "jvp structures": (lambda J: J.jvp(lambda x: x, (X3,), ((X3,),)), "must have the same tree structure"),
    "jvp of a tuple along a list": (
        lambda J: J.jvp(lambda x: x, (X3,), [X3]),
        "must have the same tree structure",
    ),
    "a word": (lambda J: J.grad(lambda x: x)("foo"), "Argument 'foo' of type <class 'str'> is not a valid JAX"),
    "linear_transpose of integers to floats": (
        lambda J: J.linear_transpose(lambda x: x * 2.5, 1),
        "linear_transpose only supports [float or complex] -> [float or complex]",
    ),
    "float0 in lax": (
        lambda J: J.lax.add(np.zeros(2, J.float0), X3[:2]),
        "float0s do not support any operations by design",
    ),
    "float0": (
        lambda J: J.numpy.add(np.zeros(2, J.float0), X3[:2]),
        "float0s do not support any operations by design",
    ),
    "jvp dtypes": (lambda J: J.jvp(lambda x: x, (1,), (1,)), "the tangent dtype must be float0"),
    "jvp shapes": (lambda J: J.jvp(lambda x: x, (X3,), (X3[:2],)), "different primal and tangent shapes"),
    "vjp of two": (lambda J: J.vjp(lambda x: x, X3)[1](X3, X3), "must be called with a single argument"),
    "vjp structure": (lambda J: J.vjp(lambda x: x, X3)[1]((X3,)), "unexpected tree structure"),
    "vjp dtype": (
        lambda J: J.vjp(lambda x: x, X3)[1](X3.astype("float16")),
        "got float16[3], but expected float32[3]",
    ),
    "vjp shape": (lambda J: J.vjp(lambda x: x, X3)[1](X3[:1]), "got float32[1], but expected float32[3]"),
    "linearize structure": (lambda J: J.linearize(lambda x: x, X3)[1](X3, X3), "expected PyTreeDef((*,))"),
    "linearize shape": (
        lambda J: J.linearize(lambda x: x, X3)[1](X3[:1]),
        "inconsistent with the original primal values",
    ),
    "custom_vjp forwards": (
        lambda J: _forward_through_vjp(J),
        "can't apply forward-mode autodiff (jvp) to a custom_vjp",
    ),
}

CUSTOM = {
    "no jvp": (
        lambda J: J.custom_jvp(lambda x: x)(1.0),
        "No JVP defined for custom_jvp function <lambda> using defjvp",
    ),
    "no vjp": (
        lambda J: J.custom_vjp(lambda x: x)(1.0),
        "No VJP defined for custom_vjp function <lambda> using defvjp",
    ),
    "jvp: no pair": (with_jvp_rule(lambda p, t: p[0]), "must produce a pair (list or tuple of length two)"),
    "jvp: structures": (
        with_jvp_rule(lambda p, t: (p[0], (t[0], t[0]))),
        "with equal container (pytree) structures",
    ),
    "jvp: shapes": (with_jvp_rule(lambda p, t: (p[0], X3)), "with corresponding shapes and dtypes"),
    "jvp: dtypes": (with_jvp_rule(lambda p, t: (p[0], 1)), "with corresponding shapes and dtypes"),
    "vjp: no pair": (
        with_vjp_rules(lambda x, y: x, lambda r, c: (c, c)),
        "must produce a pair (list or tuple of length two)",
    ),
    "vjp: no tuple": (with_vjp_rules(lambda x, y: (x, ()), lambda r, c: c), "must produce a"),
    "vjp: length": (with_vjp_rules(lambda x, y: (x, ()), lambda r, c: (c,)), "tuple of length equal to the"),
    "vjp: structure": (
        with_vjp_rules(lambda x, y: (x, ()), lambda r, c: (c, (c, c))),
        "same container (pytree) structure",
    ),
    "custom_vmap backwards": (
        lambda J: J.grad(_with_vmap_rule(J))(1.0),
        "Linearization failed to produce known values for all output primals",
    ),
    "vjp: shape": (with_vjp_rules(lambda x, y: (x, ()), lambda r, c: (X3, c)), "must produce a"),
}

BATCHES = {
    "sizes": (lambda J: J.vmap(lambda x, y: x)(X3, np.ones(4)), "axis 0 of argument x of type float32[3]"),
    "sizes in a tree": (
        lambda J: J.vmap(lambda d: d)({"a": X3, "b": np.ones(4)}),
        "argument d['b'] of type float32[4]",
    ),
    "rank": (
        lambda J: J.vmap(lambda x: x)(1.0),
        "its rank should be at least 1, but is only 0 (its shape is ())",
    ),
    "axis": (lambda J: J.vmap(lambda x: x, in_axes=1)(X3), "its rank should be at least 2"),
    "nothing mapped": (
        lambda J: J.vmap(lambda x: x, in_axes=None)(X3),
        "at least one non-None value in in_axes",
    ),
    "in_axes length": (lambda J: J.vmap(lambda x: x, in_axes=(0, 0))(X3), "len(in_axes)=2, len(args)=1"),
    "in_axes type": (
        lambda J: J.vmap(lambda x: x, in_axes="a"),
        "vmap in_axes must be an int, None, or a tuple",
    ),
    "in_axes leaves": (
        lambda J: J.vmap(lambda x: x, in_axes=("a",)),
        "with those types as leaves, but got ('a',)",
    ),
    "in_axes structure": (
        lambda J: J.vmap(lambda x: x, in_axes=((0, 0),))(X3),
        "vmap in_axes specification must be a tree",
    ),
    "out_axes structure": (
        lambda J: J.vmap(lambda x: x, out_axes=(0, 0))(X3),
        "vmap out_axes specification must be a tree",
    ),
    "out_axes None": (
        lambda J: J.vmap(lambda x: x, out_axes=None)(X3),
        "got axis spec None but output was batched on axis 0",
    ),
    "out_axes None, of a named axis": (
        lambda J: J.vmap(lambda x: x, out_axes=None, axis_name="foo")(X3),
        "vmap has mapped output (axis_name=foo) but out_axes is None",
    ),
    "out_axes bounds": (
        lambda J: J.vmap(lambda x: x, out_axes=2)(X3),
        "axis 2 is out of bounds for array of dimension 1",
    ),
    "axis_size": (
        lambda J: J.vmap(lambda x: x, axis_size=4)(X3),
        "vmap got inconsistent sizes for array axes to be mapped",
    ),
    "no array": (lambda J: J.vmap(lambda x: x)("a"), "not a valid JAX type"),
    "no result": (lambda J: J.vmap(lambda x: "a")(X3), r"Output from batched function 'a' with type <class 'str'> is"),
}

ROWS = {
    f"{topic}: {name}": row
    for topic, rows in [
        ("tracer", TRACERS),
        ("call", CALLS),
        ("derivative", DERIVATIVES),
        ("custom", CUSTOM),
        ("vmap", BATCHES),
    ]
    for name, row in rows.items()
}


def _use_twice(J):
    """Reads an array that was given away. Passing it again makes JAX raise one of two classes, by what it has cached."""
    x = J.numpy.ones(3)
    J.jit(lambda x: x + 1, donate_argnums=0)(x)
    np.asarray(x)


class _Incomparable:
    def __hash__(self):
        return 1

    def __eq__(self, other):
        raise NotImplementedError


def _call_twice(J, make):
    f = J.jit(lambda x, n: x, static_argnums=1)
    return f(1.0, make()), f(1.0, make())


def _linear_named(x):
    return x * 2


def _donating(J, which):
    return J.jit(lambda a, b: (a + b, a - b), donate_argnums=which)


def _compiled_for_floats(J):
    return J.jit(_linear_named).lower(np.float32(1)).compile()


def _with_types(J, rule):
    odd_p = J.extend.core.Primitive("odd")
    odd_p.def_abstract_eval(rule)
    return J.jit(lambda x: odd_p.bind(x))


def _forward_through_vjp(J):
    f = J.custom_vjp(lambda x: x * 2)
    f.defvjp(lambda x: (x, None), lambda _, ct: (ct,))
    return J.jvp(f, (1.0,), (1.0,))


def test_a_key_may_be_an_argument_that_is_not_differentiated():
    def drawn(J):
        @partial(J.custom_jvp, nondiff_argnums=(0,))
        def sample(key, scale):
            return scale * J.random.normal(key)

        sample.defjvp(lambda key, primals, tangents: (sample(key, *primals), tangents[0]))
        keys = J.random.split(J.random.key(0), 3)
        return J.vmap(lambda key: J.grad(lambda s: sample(key, s))(2.0))(keys).tolist()

    assert drawn(OURS) == drawn(THEIRS) == [1, 1, 1]


@pytest.mark.parametrize("name", ROWS)
@pytest.mark.one_in(4)
def test_error_is_jaxs(name):
    check(*ROWS[name])


@pytest.mark.parametrize("options", [{"backend": "cpu"}, {"device": 0}])
def test_jit_warns_of_where_it_would_run(options):
    for J in IN_BOTH:
        given = {"device": J.devices()[0]} if "device" in options else options
        with pytest.warns(DeprecationWarning, match="backend and device argument on jit is deprecated"):
            assert J.jit(lambda x: x + 1, **given)(1.0) == 2.0


class Duck:
    """Has a shape and a dtype, and no value."""

    shape, dtype = (3,), np.dtype("float32")


def test_types_are_enough_where_nothing_is_computed():
    f = lambda x: x * 2
    assert OURS.eval_shape(f, Duck()) == OURS.jit(f).eval_shape(Duck()) == OURS.ShapeDtypeStruct((3,), "float32")
    assert str(OURS.make_jaxpr(f)(Duck())) == str(OURS.make_jaxpr(f)(X3))
    assert OURS.linear_transpose(f, Duck())(X3)[0].tolist() == [0, 2, 4]
    assert OURS.linear_transpose(f, 1)(3)[0] == 6


def test_vmap_hands_on_what_is_not_mapped_as_it_is():
    out = OURS.vmap(lambda f, x: f(x), in_axes=(None, 0))(lambda x: x + 1, X3)
    assert out.tolist() == [1, 2, 3]


def test_an_array_that_was_given_away_cannot_be_passed_again():
    f = OURS.jit(lambda x: x + 1, donate_argnums=0)
    x = OURS.numpy.ones(3)
    f(x)
    with pytest.raises(RuntimeError, match=r"Array has been deleted with shape=float32\[3\]"):
        f(x)


def test_errors_say_where_and_what_to_do():
    error = raised(OURS, jit(lambda x: 1 if x > 0 else 2, 1.0))
    assert "test_errors.py" in str(error) and "jnp.where" in str(error)


def test_leak_through_a_second_jit():
    def call(J):
        stored = []
        J.jit(lambda x: stored.append(x) or x)(1.0)
        return J.jit(lambda y: stored[0] + y)(1.0)

    check(call, "Encountered an unexpected tracer")


def test_leak_as_argument():
    def call(J):
        stored = []
        J.jit(lambda x: stored.append(x) or x)(1.0)
        return J.jit(lambda y: y)(stored[0])

    check(call, "Encountered an unexpected tracer")


def test_checking_leaks_raises_where_the_value_escapes():
    stored = []
    with pytest.raises(Exception, match="Leaked trace.*\n.*JitTracer.*held by: list"), OURS.checking_leaks():
        OURS.jit(lambda x: stored.append(x * 1) or x)(1.0)


def test_checking_leaks_raises_where_an_example_escapes():
    for J in IN_BOTH:
        stored = []
        with pytest.raises(Exception, match="Leaked trace"), J.checking_leaks():
            J.vmap(lambda x, stored=stored: stored.append(x) or x)(X3)


@pytest.mark.parametrize(
    "make",
    [
        lambda J: J.jit(lambda x: J.numpy.sin(x) + J.jit(lambda y: y * 2)(x)),
        lambda J: J.jit(J.grad(lambda x: J.nn.relu(x) * J.numpy.where(x > 0, x, 2.0))),
        lambda J: J.jit(lambda x: J.nn.softplus(x) * 2),
        lambda J: J.jit(lambda x: J.jit(J.vmap(lambda y: J.nn.softplus(y * x)))(J.numpy.ones(3))),
        lambda J: lambda x: J.vmap(J.grad(lambda x: J.nn.relu(x) * J.numpy.sin(x)))(J.numpy.ones(3) * x),
        lambda J: lambda x: J.jit(J.vmap(J.vmap(lambda y: J.nn.softplus(y) * x)))(J.numpy.ones((2, 3))),
    ],
)
def test_checking_leaks_accepts_programs_without_leaks(make):
    """Also with types that `vmap` maps as a whole, which it then looks for."""
    import_module("mpijax.experimental.sparse")
    with OURS.checking_leaks():
        make(OURS)(1.5)


def test_what_is_missing_says_what_to_use_instead():
    with pytest.raises(AttributeError, match="'jax2tf_associative_scan_reductions': it belongs to XLA"):
        __import__("mpijax").jax2tf_associative_scan_reductions  # noqa: B018
    assert not hasattr(__import__("mpijax"), "no_such_name")


def test_an_error_found_in_a_program_has_no_lookup_as_its_cause():
    def call(J):
        f = J.custom_vjp(lambda x: x)
        f.defvjp(lambda x: (x, x), lambda x, g: (g[:1],))
        return J.jit(J.grad(lambda x: f(x).sum()))(X3)

    error = raised(OURS, call)
    assert isinstance(error, ValueError) and error.__context__ is None

    def broken(x):
        raise ZeroDivisionError

    f = OURS.custom_vjp(lambda x: x)
    f.defvjp(broken, broken)
    held = OURS.jit(f)
    held.trace(1.0)
    error = raised(OURS, lambda J: J.grad(held)(1.0))
    assert isinstance(error, ZeroDivisionError) and error.__context__ is None
