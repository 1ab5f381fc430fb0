"""Beginners' mistakes: mpijax raises JAX's class of error, says at least what JAX says, and ends at the user's line.

`mistakes.txt` holds JAX's text beside ours for each row of `mistakes.py`, to be read. To renew both:

    python tests/edges/test_mistakes.py
"""

import importlib.util
import re
import sys
import traceback
import warnings
from pathlib import Path

import numpy as np
import pytest

HERE = Path(__file__).parent
GOLDEN = HERE / "mistakes.txt"
_SPEC = importlib.util.spec_from_file_location("mistakes", HERE / "mistakes.py")
mistakes = importlib.util.module_from_spec(_SPEC)
sys.modules["mistakes"] = mistakes
_SPEC.loader.exec_module(mistakes)

# What a reader learns from a text: types, shapes, numbers, names.
FACT = re.compile(r"\b(?:float|int|uint|bool|complex)\d*\[[\d,]*\]|\([\d, ]*\d[\d, ]*\)|\b\d+\b|'\w+'")
# Facts of JAX's text that ours leaves out, and why.
LEFT_OUT = {
    "jit_of_a_result": "the last digit of sin(1)",
    "grad_of_a_pair": "JAX shows its own class of numbers",
    "sum_of_a_string_and_an_array": "the name of JAX's class",
    "method_that_is_not_there": "the name of JAX's class",
    "function_that_is_not_there": "the name of JAX's module",
    "at_with_call": "the name of JAX's class",
    "generator_that_is_not_there": "the order of the generators",
    "traced_value_as_key_of_a_dict": "the name of JAX's class",
    "traced_value_that_leaked": "the number of frames that JAX shows",
    "number_that_is_too_large_in_a_sum": "we say what the number does not fit into",
    "seed_that_is_a_float": "we show the seed",
    "slice_with_a_float": "we say what a slice may hold",
    "mesh_shape_and_names_of_different_lengths": "we show the arguments",
    "sharding_by_a_tuple": "an attribute that JAX looks for",
    "shard_map_result_that_varies_said_to_be_the_same": "the name of an inner function of JAX",
    "pmap_over_more_devices_than_there_are": "an inner step of JAX",
    "cholesky_of_a_rectangle": "an inner step of JAX",
    "eigenvalues_of_a_vector": "an inner step of JAX",
    "callback_of_no_function": "the frames of JAX",
    "tile_by_a_float": "an inner shape of JAX",
    "linear_transpose_of_what_is_not_linear": "an inner object of JAX",
    "static_argnums_by_a_name": "we show the name",
    "checkpoint_with_a_policy_by_name": "we show the policy",
    "assignment_to_the_shape": "the name of JAX's class",
    "keys_split_into_a_float": "we show the number",
    "tree_map_with_the_arguments_exchanged": "we show the first argument",
    "sharding_by_a_list": "we show the list",
    "mesh_of_devices_in_set_mesh": "we show the list",
    "shard_map_without_out_specs": "we name it without quotes",
}

# Where JAX raises by accident, from an inner step, or a class that only it has: the class of ours, which names the mistake.
OWN_CLASS = {
    "partition_with_an_axis_twice": "ValueError",  # JAX's class is private
    "sharding_by_a_tuple": "TypeError",
    "collective_over_an_axis_of_another_mesh": "NameError",
    "ppermute_to_a_rank_that_is_not_there": "ValueError",
    "psum_scatter_of_a_scalar": "ValueError",
    "callback_of_no_function": "TypeError",
    "linear_transpose_of_what_is_not_linear": "TypeError",
}


def raised(library, fun) -> Exception:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Exception) as caught:
            fun(library)
    return caught.value


def kind(error: Exception) -> str:
    # An AxisError is a ValueError to JAX's users, and an IndexError to those of the array API standard.
    return "ValueError" if isinstance(error, np.exceptions.AxisError) else type(error).__name__


def text(error: Exception) -> str:
    """The class and the message, without addresses and lines."""
    said = re.sub(r"0x[0-9a-f]+|x7f[0-9a-f]+", "0x", f"{kind(error)}: {error}")
    said = re.sub(r"\S*mistakes\.py:\d+", "mistakes.py", said)
    said = said.partition("Traceback (most recent call last)")[0]
    return "\n".join(line.rstrip() for line in said.strip().splitlines())


def golden() -> dict[str, tuple[str, str]]:
    """(JAX's text, ours) of each mistake."""
    sections = re.split(r"^==== (\w+)\n", GOLDEN.read_text(), flags=re.MULTILINE)[1:]
    pairs = zip(sections[::2], sections[1::2], strict=True)
    return {name: tuple(part.strip() for part in body.split("\n---- mpijax\n")) for name, body in pairs}


def test_the_texts_are_those_of_the_table():
    assert list(golden()) == list(mistakes.MISTAKES) and len(mistakes.MISTAKES) >= 300


@pytest.mark.parametrize("name", mistakes.MISTAKES)
@pytest.mark.one_in(4)
def test_mistake(name):
    import mpijax
    from mpijax.core.base import tracebacks

    fun = mistakes.MISTAKES[name]
    error = raised(mpijax, fun)
    theirs, ours = golden()[name]
    assert text(error) == ours, "to accept: python tests/edges/test_mistakes.py, and read what it changes"
    assert ours.partition(":")[0] == OWN_CLASS.get(name, theirs.partition(":")[0]), "another class than JAX's"
    missing = {fact for fact in FACT.findall(theirs) if fact not in ours}
    assert not missing or name in LEFT_OUT, f"JAX says {missing}"

    # Only what the caller needs: no other exception is shown before it, unless NumPy put it there.
    earlier = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    assert earlier is None or name == "numpy_item_assignment_of_a_traced_value", repr(earlier)
    tracebacks.leave_out_own_frames(error)
    last = traceback.extract_tb(error.__traceback__)[-1]
    assert last.filename == mistakes.__file__, f"ends at {last.filename}:{last.lineno}"


@pytest.mark.slow
@pytest.mark.parametrize("name", mistakes.MISTAKES)
def test_texts_are_jaxs(name):
    import jax

    assert text(raised(jax, mistakes.MISTAKES[name])) == golden()[name][0]


def renew() -> None:
    import jax

    import mpijax

    sections = [
        f"==== {name}\n{text(raised(jax, fun))}\n---- mpijax\n{text(raised(mpijax, fun))}\n\n"
        for name, fun in mistakes.MISTAKES.items()
    ]
    GOLDEN.write_text("".join(sections).rstrip() + "\n")


if __name__ == "__main__":
    renew()
