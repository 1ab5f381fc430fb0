"""The answers of JAX that tests keep: what is found, what is not, and that a wrong one fails."""

import json
import sys

import answers
import answers_of_programs
import jax
import jax.numpy as jnp
import numpy as np
import oracle
import pytest
from jax._src import compiler


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Answers of a folder without any: `folder(mode)` are those of a test run that starts now."""
    monkeypatch.setattr(answers.session, "current", None)

    def start(mode: str) -> answers.Answers:
        if answers.session.current is not None:
            answers.session.current.write()
        answers.session.current = answers.Answers(tmp_path, mode)
        if mode == "kept":
            monkeypatch.setattr(answers.Answers, "sampled", lambda self, key: False)
            monkeypatch.setattr(compiler, "backend_compile_and_load", None)
        return answers.session.current

    return start


def scaled(scale=3.0):
    """A function that JAX traces each time."""
    return jax.jit(lambda x: {"y": x * scale, "n": x.size})


def test_what_ran_before_is_not_compiled(folder):
    folder("renew")
    expected = scaled()(jnp.arange(4.0))
    folder("kept")
    found = scaled()(np.arange(4.0, dtype=np.float32))
    np.testing.assert_array_equal(found["y"], expected["y"])
    assert (int(found["n"]), found["n"].dtype, found["n"].weak_type) == (4, jnp.int32, True)


@pytest.mark.parametrize(
    "make",
    [
        lambda: jax.jit(lambda: jax.random.key(3)),
        lambda: jax.jit(lambda: jax.random.split(jax.random.key(3), 2)),
        lambda: jax.jit(lambda: jnp.full((2, 0), 1.5, jnp.bfloat16)),
        lambda: jax.jit(lambda: (jnp.array([True, False]), jnp.array([-3, 3], jnp.int4), 1j * jnp.arange(2.0))),
    ],
)
def test_answers_of_all_types(make, folder):
    folder("renew")
    expected = make()()
    folder("kept")
    for a, b in zip(jax.tree.leaves(expected), jax.tree.leaves(make()()), strict=True):
        assert jnp.result_type(b) == jnp.result_type(a)
        np.testing.assert_array_equal(answers_of_programs.array_of(b), answers_of_programs.array_of(a))


def test_64_bits_where_32_are_the_default(folder):
    jax.config.update("jax_explicit_x64_dtypes", "allow")
    try:
        for mode in ("renew", "kept"):
            folder(mode)
            assert jax.jit(lambda: jnp.arange(3, dtype="float64"))().dtype == "float64"
    finally:
        jax.config.update("jax_explicit_x64_dtypes", "warn")


@pytest.mark.parametrize("again", [lambda: scaled()(jnp.arange(1.0, 5)), lambda: scaled(4.0)(jnp.arange(4.0))])
def test_other_arguments_and_other_programs_are_compiled(again, folder):
    folder("renew")
    scaled()(jnp.arange(4.0)), jnp.arange(1.0, 5)
    folder("kept")
    with pytest.raises(TypeError, match="NoneType"):
        again()


def test_a_wrong_answer_fails(folder):
    new = folder("renew")
    scaled()(np.arange(4.0))
    for key, answer in new.new.items():
        new.new[key] = answer.replace("A", "B")
    folder("fresh")
    with pytest.raises(pytest.fail.Exception, match=r"answers.txt keeps .* of jit\(<lambda>\); JAX now computes"):
        scaled()(np.arange(4.0))


def test_what_the_text_of_a_program_does_not_tell_is_not_kept(folder):
    new = folder("renew")
    x = jax.device_put(np.zeros(3))
    jax.jit(lambda x: jax.pure_callback(lambda x: x, x, x))(1.0)
    jax.jit(lambda x: x + 1, donate_argnums=0)(x)
    jax.jit(lambda x: jax.debug.callback(lambda x: None, x))(2.0)
    jax.jit(lambda x: jnp.zeros(answers.LARGEST))(2.0)
    assert not new.new


def cosine(J):
    return lambda x: J.numpy.cos(x) + shift


shift = 1.0


@pytest.fixture
def asked(monkeypatch):
    """The questions that JAX is asked."""
    questions = []
    ask = oracle.asked_of_jax
    monkeypatch.setattr(oracle, "asked_of_jax", lambda *question: questions.append(question) or ask(*question))
    return questions


def test_a_question_is_asked_once(folder, asked, monkeypatch):
    x = np.arange(3, dtype=np.float32)
    new = folder("renew")
    oracle.check(cosine, x, rtol=1e-6)
    oracle.check(lambda J: lambda: J.numpy.reshape(J.numpy.zeros(3), 2))
    assert len(asked) == len(new.new) == 2
    folder("kept")
    oracle.check(cosine, x, rtol=1e-6)
    oracle.check(lambda J: lambda: J.numpy.reshape(J.numpy.zeros(3), 2))
    assert len(asked) == 2


@pytest.mark.parametrize("change", ["arguments", "types", "global", "parts"])
def test_another_question_is_asked(change, folder, asked, monkeypatch):
    x = np.arange(3, dtype=np.float32)
    folder("renew")
    oracle.check(cosine, x, rtol=1e-6)
    answers.session.current.write()
    answers.session.current = answers.Answers(answers.session.current.file.parent, "kept")
    if change == "global":
        monkeypatch.setattr(sys.modules[__name__], "shift", 2.0)
    x = {"arguments": x + 1, "types": x.astype(np.int16)}.get(change, x)
    oracle.check(cosine, x, jaxpr=change != "parts", rtol=1e-6)
    assert len(asked) == 2


ZEROS = ["", [["AAAAAAAAAAAAAAAA", "float32", [3], "float32", False]]]


@pytest.mark.parametrize("wrong", [{"jaxpr": ["", "AAAAAAAA"]}, {"eager": ZEROS}, {"jitted": ["TypeError"]}])
def test_a_wrong_answer_makes_no_test_fail_but_the_sample(wrong, folder, asked):
    x = np.arange(3, dtype=np.float32)
    new = folder("renew")
    oracle.check(cosine, x, rtol=1e-6)
    [(key, answer)] = new.new.items()
    new.new[key] = json.dumps(json.loads(answer) | wrong, separators=(",", ":"))
    new.write()
    answers.session.current = answers.Answers(new.file.parent, "kept")
    answers.session.current.sampled = lambda key: False
    oracle.check(cosine, x, rtol=1e-6)
    assert len(asked) == 2
    answers.session.current.mode = "fresh"
    answers.session.current.sampled = lambda key: True
    with pytest.raises(pytest.fail.Exception, match="JAX now answers"):
        oracle.check(cosine, x, rtol=1e-6)


def test_ours_is_compared_with_the_kept_answer(folder, monkeypatch):
    x = np.arange(3, dtype=np.float32)
    folder("renew")
    oracle.check(cosine, x, rtol=1e-6)
    answers.session.current.write()
    answers.session.current = answers.Answers(answers.session.current.file.parent, "kept")
    monkeypatch.setattr(oracle.OURS.numpy, "cos", oracle.OURS.numpy.sin)
    with pytest.raises(AssertionError, match="Jaxprs differ"):
        oracle.check(cosine, x, rtol=1e-6)


def test_two_processes_add_to_one_file(tmp_path):
    first, second = answers.Answers(tmp_path, "renew"), answers.Answers(tmp_path, "renew")
    first.new, second.new = {"b": "1", "c": "2"}, {"a": "3"}
    first.write(), second.write()
    assert first.file.read_text() == "a 3\nb 1\nc 2\n"


def test_a_sample_is_computed_again(tmp_path):
    kept = answers.Answers(tmp_path, "kept")
    assert 0 < sum(kept.sampled(str(i)) for i in range(5000)) < 5000 // answers.SAMPLE * 2
    assert answers.Answers(tmp_path, "fresh").sampled("any")
