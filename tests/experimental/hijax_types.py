"""Types and operations of a library, made for a `jax` module: JAX's own, or this package."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any


@dataclass(frozen=True)
class Scaled:
    """A vector as whole numbers and one factor: a value that consists of two."""

    whole: Any
    factor: Any


def scaled_type(jax, jnp, hijax):
    """The type of `Scaled`; its tangents and cotangents are arrays."""

    @dataclass(frozen=True)
    class ScaledTy(hijax.HiType):
        shape: tuple

        def lo_ty(self):
            whole = hijax.ShapedArray(self.shape, jnp.dtype("int8"))
            return [whole, hijax.ShapedArray(self.shape[:-1], jnp.dtype("float32"))]

        def lower_val(self, value):
            return [value.whole, value.factor]

        def raise_val(self, whole, factor):
            return Scaled(whole, factor)

        def to_tangent_aval(self):
            return hijax.ShapedArray(self.shape, jnp.dtype("float32"))

    hijax.register_hitype(Scaled, lambda value: ScaledTy(jnp.shape(value.whole)))

    class Scale(hijax.VJPHiPrimitive):
        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval,), ScaledTy(aval.shape), {}
            super().__init__()

        def expand(self, x):
            factor = jnp.max(jnp.abs(x), axis=-1) / 100
            return Scaled(jnp.round(x / factor[..., None]).astype("int8"), factor)

        def vjp_fwd(self, nonzero, x):
            return self(x), None

        def vjp_bwd_retval(self, _, ct):
            return (ct,)

    class Unscale(hijax.VJPHiPrimitive):
        def __init__(self, aval):
            self.in_avals, self.params = (aval,), {}
            self.out_aval = hijax.ShapedArray(aval.shape, jnp.dtype("float32"))
            super().__init__()

        def expand(self, value):
            return value.whole * value.factor[..., None]

        def vjp_fwd(self, nonzero, value):
            return self(value), None

        def vjp_bwd_retval(self, _, ct):
            return (ct,)

    return SimpleNamespace(
        ty=ScaledTy,
        scale=lambda x: Scale(jax.typeof(x))(x),
        unscale=lambda value: Unscale(jax.typeof(value))(value),
    )


@dataclass(frozen=True)
class Wrapped:
    """One array: a value that is its own kind of vector."""

    array: Any


def wrapped_type(jax, jnp, hijax):
    """The type of `Wrapped`, which is also the type of its tangents, with primitives."""

    @dataclass(frozen=True)
    class WrappedTy(hijax.HiType):
        shape: tuple = ()
        mat = hijax.ShapedArray((), jnp.dtype("float32")).mat  # JAX's scan asks each carry

        def str_short(self, short_dtypes=False, **_):
            return f"Wrapped{list(self.shape)}"

        def lo_ty(self):
            return [hijax.ShapedArray(self.shape, jnp.dtype("float32"))]

        def lower_val(self, value):
            return [value.array]

        def raise_val(self, array):
            return Wrapped(array)

        def to_tangent_aval(self):
            return self

        def vspace_zero(self):
            return Wrapped(jnp.zeros(self.shape))

        def vspace_add(self, x, y):
            return add.bind(x, y)

        def dec_rank(self, size, spec):
            return self if spec is None else WrappedTy(self.shape[:spec] + self.shape[spec + 1 :])

        def inc_rank(self, size, spec):
            return self if spec is None else WrappedTy((*self.shape[:spec], size, *self.shape[spec:]))

        def leading_axis_spec(self):
            return 0

        @property
        def doubled(self):
            return hijax.aval_property(lambda x: add.bind(x, x))

        times = hijax.aval_method(lambda x, y: multiply.bind(x, y))
        copy = hijax.aval_method(lambda x, *, twice: add.bind(x, x) if twice else x)

        def _add(self, x, y):
            return add.bind(x, y)

        def _getitem(self, x, index):
            return unwrap.bind(x)[index]

        def _len(self, x):
            return self.shape[0]

    hijax.register_hitype(Wrapped, lambda value: WrappedTy(jnp.shape(value.array)))

    class Linear(hijax.HiPrimitive):
        """Between arrays and values: the transpose of each of the two is the other."""

        def jvp(self, primals, tangents):
            return self.bind(*primals), self.bind(*tangents)

    class Wrap(Linear):
        def abstract_eval(self, aval):
            return WrappedTy(aval.shape), set()

        def to_lojax(self, array):
            return Wrapped(array)

        def transpose(self, ct, _):
            return [unwrap.bind(ct)]

    class Unwrap(Linear):
        def abstract_eval(self, aval):
            return aval.lo_ty()[0], set()

        def to_lojax(self, value):
            return value.array

        def transpose(self, ct, _):
            return [wrap.bind(ct)]

    class Multiply(hijax.HiPrimitive):
        def abstract_eval(self, x, y):
            return x, set()

        def to_lojax(self, x, y):
            return Wrapped(x.array * y.array)

        def jvp(self, primals, tangents):
            (x, y), (dx, dy) = primals, map(hijax.instantiate_zeros, tangents)
            return self.bind(x, y), add.bind(self.bind(dx, y), self.bind(x, dy))

        def transpose(self, ct, x, y):
            return (self.bind(ct, y), None) if hijax.is_undefined_primal(x) else (None, self.bind(x, ct))

    class Add(hijax.HiPrimitive):
        def abstract_eval(self, x, y):
            return x, set()

        def to_lojax(self, x, y):
            return Wrapped(x.array + y.array)

        def jvp(self, primals, tangents):
            return self.bind(*primals), self.bind(*map(hijax.instantiate_zeros, tangents))

        def transpose(self, ct, x, y):
            return [ct if hijax.is_undefined_primal(z) else None for z in (x, y)]

    class Halves(hijax.HiPrimitive):
        multiple_results = True

        def abstract_eval(self, x):
            return [x, hijax.ShapedArray(x.shape, jnp.dtype("float32"))], set()

        def to_lojax(self, x):
            return [Wrapped(x.array / 2), x.array / 2]

    wrap, unwrap, multiply, add, halves = (
        Wrap("wrap"), Unwrap("unwrap"), Multiply("multiply"), Add("add_wrapped"), Halves("halves")
    )  # fmt: skip

    for primitive in (wrap, unwrap, multiply, add):

        def batch(args, dims, p=primitive):
            return p.bind(*args), next(d for d in dims if d is not None)

        jax.interpreters.batching.primitive_batchers[primitive] = batch

    return SimpleNamespace(
        ty=WrappedTy, wrap=wrap.bind, unwrap=unwrap.bind, multiply=multiply.bind, add=add.bind, halves=halves.bind
    )


class Pair:
    """Two arrays, each with an axis of examples of its own, or none."""

    def __init__(self, x, y):
        self.x, self.y = x, y


def pair_type(jax, jnp, hijax, mapping_spec):
    """The type of `Pair`, with the layout of its examples."""

    @dataclass(frozen=True)
    class PairSpec(mapping_spec):
        x: Any
        y: Any

    @dataclass(frozen=True)
    class PairTy(hijax.HiType):
        x: Any
        y: Any

        def lo_ty(self):
            return [self.x, self.y]

        def lower_val(self, pair):
            return [pair.x, pair.y]

        def raise_val(self, x, y):
            return Pair(x, y)

        def normalize(self):
            return PairTy(self.x.normalize(), self.y.normalize())

        def dec_rank(self, size, spec):
            return PairTy(self.x.dec_rank(size, spec.x), self.y.dec_rank(size, spec.y))

        def inc_rank(self, size, spec):
            return PairTy(self.x.inc_rank(size, spec.x), self.y.inc_rank(size, spec.y))

        def leading_axis_spec(self):
            return PairSpec(0, 0)

    hijax.register_hitype(Pair, lambda pair: PairTy(jax.typeof(pair.x), jax.typeof(pair.y)))

    class Make(hijax.VJPHiPrimitive):
        def __init__(self, x, y):
            self.in_avals, self.out_aval, self.params = (x, y), PairTy(x, y), {}
            super().__init__()

        def expand(self, x, y):
            return Pair(x, y)

        def batch(self, axis, args, dims):
            return make(*args), PairSpec(*dims)

    class Get(hijax.VJPHiPrimitive):
        def __init__(self, pair, name):
            self.in_avals, self.out_aval, self.params = (pair,), getattr(pair, name), {"name": name}
            super().__init__()

        def expand(self, pair):
            return getattr(pair, self.name)

        def batch(self, axis, args, dims):
            return get(args[0], self.name), getattr(dims[0], self.name)

    def make(x, y):
        return Make(jax.typeof(x), jax.typeof(y))(x, y)

    def get(pair, name):
        return Get(jax.typeof(pair), name)(pair)

    return SimpleNamespace(spec=PairSpec, make=make, get=get)


def operations(jax, jnp, hijax):
    """Operations on arrays, each with other rules."""

    class Power(hijax.VJPHiPrimitive):
        """With all rules."""

        def __init__(self, aval, power):
            self.in_avals, self.out_aval, self.params = (aval,), aval, {"power": power}
            super().__init__()

        def expand(self, x):
            return x**self.power

        def jvp(self, primals, tangents):
            (x,), (dx,) = primals, tangents
            return self(x), dx * self.power * x ** (self.power - 1)

        def vjp_fwd(self, nonzero, x):
            return self(x), x

        def vjp_bwd_retval(self, x, ct):
            return (ct * self.power * power(x, self.power - 1),)

        def batch_dim_rule(self, axis, dims):
            return dims[0]

    class Product(hijax.VJPHiPrimitive):
        """With a backward rule that adds to accumulators, and one for vmap with the dims alone."""

        seen: list = []

        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = (aval, aval), aval, {}
            super().__init__()

        def expand(self, x, y):
            return x * y

        def vjp_fwd(self, nonzero, x, y):
            self.seen.append(tuple(nonzero))
            return self(x, y), (x, y)

        def vjp_bwd(self, residuals, ct, x_sum, y_sum):
            x, y = residuals
            x_sum.accum(ct * y)
            y_sum.accum(ct * x)

        def batch_dim_rule(self, axis, dims):
            return dims[1] if dims[0] is None else dims[0]

    class Scaling(hijax.VJPHiPrimitive):
        """With a rule for `linearize`, of a pytree."""

        def __init__(self, aval):
            self.in_avals, self.out_aval, self.params = ({"x": aval, "by": aval},), {"out": aval}, {}
            super().__init__()

        def expand(self, args):
            return {"out": args["x"] * args["by"]}

        def lin(self, nonzero, args):
            return self(args), args

        def linearized(self, args, tangents):
            tangents = jax.tree.map(
                hijax.instantiate_zeros, tangents, is_leaf=lambda t: isinstance(t, hijax.Zero)
            )
            return {"out": args["x"] * tangents["by"] + tangents["x"] * args["by"]}

    def power(x, n):
        return Power(jax.typeof(x), n)(x)

    return SimpleNamespace(
        power=power,
        product=lambda x, y: Product(jax.typeof(x))(x, y),
        scaling=lambda args: Scaling(jax.typeof(args["x"]))(args)["out"],
        seen=Product.seen,
    )
