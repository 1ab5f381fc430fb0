"""Error classes: their place among Python's and JAX's, what they say about the value, and the way out."""

import pickle
from types import SimpleNamespace

import jax
import pytest

import mpijax
from mpijax import errors as public
from mpijax.core.base import errors

NAMES = sorted(name for name in dir(jax.errors) if not name.startswith("_"))


class Tracer:
    """What the constructors ask of a tracer."""

    aval = "bool[3]"

    def _error_repr(self):
        return "traced array with shape float32[3]"

    def _origin_msg(self):
        return "\nIt depends on the argument x of f at file.py:7.\n"


def test_public_names():
    assert sorted(public.__all__) == sorted([*NAMES, "MismatchError"])


@pytest.mark.parametrize("name", NAMES)
def test_bases_are_those_of_jax(name):
    ours, theirs = ([c.__name__ for c in getattr(m, name).__mro__] for m in (public, jax.errors))
    assert [c for c in ours if not c.startswith("_")] == [c for c in theirs if not c.startswith("_")]


# class, how JAX's message begins, a word of the remedy
TRACED = [
    (
        errors.ConcretizationTypeError,
        "Abstract tracer value encountered where concrete value is expected: "
        "traced array with shape float32[3]",
        "static_argnums",
    ),
    (
        errors.TracerBoolConversionError,
        "Attempted boolean conversion of traced array with shape float32[3].",
        "jnp.where",
    ),
    (
        errors.TracerIntegerConversionError,
        "The __index__() method was called on traced array with shape float32[3]",
        "static_argnums",
    ),
    (
        errors.TracerArrayConversionError,
        "The numpy.ndarray conversion method __array__() was called on traced array with shape float32[3]",
        "jax.numpy",
    ),
    (errors.NonConcreteBooleanIndexError, "Array boolean indices must be concrete; got bool[3]", "jnp.where"),
]


@pytest.mark.parametrize("transform", ["jit", "grad", "vmap"])
def test_a_traced_value_cannot_be_pickled(transform):
    texts = []
    for lib in (mpijax, jax):
        with pytest.raises(lib.errors.ConcretizationTypeError) as caught:
            getattr(lib, transform)(lambda x: pickle.dumps(x))(lib.numpy.ones(2))
        texts.append(" ".join(str(caught.value).split()))
    ours, theirs = texts
    assert ours.startswith(theirs.partition(" traced value.")[0]) and "mpijax.mpi" in ours


@pytest.mark.parametrize("error, beginning, remedy", TRACED)
def test_message_of_a_traced_value(error, beginning, remedy):
    lines = str(error(Tracer())).split("\n")
    assert lines[0] == beginning
    assert lines[1] == "It depends on the argument x of f at file.py:7."
    assert remedy in lines[2]
    assert lines[3:] == [f"See https://docs.jax.dev/en/latest/errors.html#jax.errors.{error.__name__}"]


def test_context_stands_between_value_and_origin():
    lines = str(errors.ConcretizationTypeError(Tracer(), "It arose in jnp.arange.")).split("\n")
    assert lines[1] == "It arose in jnp.arange." and lines[2].startswith("It depends on")


@pytest.mark.parametrize(
    "value, text",
    [
        ("a value of my own", "a value of my own"),
        (SimpleNamespace(aval="float32[3]"), "traced array with shape float32[3]"),
        (7, "7"),
    ],
)
def test_other_descriptions_of_a_value(value, text):
    for error, _, _ in TRACED[:-1]:
        assert text in str(error(value))


@pytest.mark.parametrize(
    "error, remedy",
    [(errors.UnexpectedTracerError, "Return the value"), (errors.KeyReuseError, "random.split")],
)
def test_messages_given_by_the_caller(error, remedy):
    lines = str(error("What happened.\n")).split("\n")
    assert lines[0] == "What happened." and remedy in lines[1] and error.__name__ in lines[2]
