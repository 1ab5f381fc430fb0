"""Questions of `oracle.check`: one that JAX answered before, about the same function and arguments, it is not asked again.

An answer is what `check` compares: a digest of the Jaxpr's text, and of results the types and values. Where ours is not
like the kept answer JAX is asked, so that a kept answer never makes a test fail.
"""

from __future__ import annotations

import functools
import json
from base64 import b64decode, b64encode
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from answers import close, session
from fingerprints import NoFingerprintError, digest, fingerprint


@dataclass(frozen=True)
class Leaf:
    """A result of JAX: its values, the name of its dtype, and whether its type is weak."""

    array: np.ndarray
    dtype: str
    weak: bool | None


@dataclass(frozen=True)
class Digest:
    """Of a text that is not kept."""

    text: str

    @classmethod
    def of(cls, text: str) -> Digest:
        return cls(digest(text.encode()))


Outcome = tuple  # ("value", Leaves, or a text or its Digest) or ("error", class name, message)


def answer_to(question: tuple, ask: Callable[[], dict[str, Outcome]], judge: Callable[[dict[str, Outcome]], None]) -> None:
    """Judge ours by JAX's answer to a question: by the kept one, or by what it answers now.

    Args:
      judge: Raises AssertionError where ours is another answer.
    """
    answers, key = session.current, key_of(question)
    if answers is None or key is None:
        judge(ask())
        return
    kept = answers.kept.get(key) if answers.mode != "renew" else None
    if kept is not None and not answers.sampled(key):
        try:
            judge(decoded(kept))
            return
        except AssertionError:
            kept = None
    with session.nothing_kept():
        answer = ask()
    text = encoded(answer)
    if answers.mode == "renew" and text is not None:
        answers.keep(key, text)
    if kept is not None and not (text and same(decoded(kept), decoded(text))):
        pytest.fail(f"{answers.file} keeps {kept} for {key}; JAX now answers {text}. See CONTRIBUTING.md, Test.")
    judge(answer)


def key_of(question: tuple) -> str | None:
    """None where a part of the question has no fingerprint."""
    import jax
    from jax._src import config, core

    try:
        of_question = fingerprint(*question)
    except NoFingerprintError:
        return None
    *context, _ = config.trace_context()  # the last are the axes of a trace
    return of_question + digest(f"{jax.__version__} {context} {core.trace_state_clean()}".encode())


def encoded(answer: dict[str, Outcome]) -> str | None:
    """None where a result is no array of numbers."""
    parts: dict[str, list] = {}
    for name, (kind, found, *_) in answer.items():
        if kind == "error":
            parts[name] = [found]
        elif isinstance(found, str):
            parts[name] = ["", Digest.of(found).text]
        elif any(leaf.array.dtype.hasobject for leaf in found):
            return None
        else:
            parts[name] = ["", [encoded_leaf(leaf) for leaf in found]]
    eager, jitted = parts.get("eager", []), parts.get("jitted", [])
    if len(eager) == len(jitted) == 2 and [x[0] for x in eager[1]] == [x[0] for x in jitted[1]]:
        parts["jitted"] = ["", [["", *types] for _, *types in jitted[1]]]
    return json.dumps(parts, separators=(",", ":"))


def encoded_leaf(leaf: Leaf) -> list:
    data = b64encode(leaf.array.tobytes()).decode()
    return [data, leaf.array.dtype.name, leaf.array.shape, leaf.dtype, leaf.weak]


def decoded(text: str) -> dict[str, Outcome]:
    answer: dict[str, Outcome] = {}
    parts = json.loads(text)
    for name, (error, *found) in parts.items():
        if error:
            answer[name] = ("error", error, "")
        elif isinstance(found[0], str):
            answer[name] = ("value", Digest(found[0]))
        else:
            eager = parts.get("eager", [])[1:]
            like = eager[0] if eager and len(eager[0]) == len(found[0]) else found[0]
            answer[name] = ("value", list(map(decoded_leaf, found[0], like)))
    return answer


def decoded_leaf(leaf: list, like: list) -> Leaf:
    """like: the leaf that has the same bytes where this one has none."""
    data, name, shape, dtype, weak = leaf
    return Leaf(np.frombuffer(b64decode(data or like[0]), dtype_of(name)).reshape(shape), dtype, weak)


@functools.cache
def dtype_of(name: str) -> np.dtype:
    return np.dtype(getattr(ml_dtypes, name, name))


def same(a: dict[str, Outcome], b: dict[str, Outcome]) -> bool:
    return a.keys() == b.keys() and all(same_outcome(a[name], b[name]) for name in a)


def same_outcome(a: Outcome, b: Outcome) -> bool:
    if not isinstance(a[1], list) or not isinstance(b[1], list):
        return a[:2] == b[:2]
    pairs: list[tuple[Any, Any]] = list(zip(a[1], b[1], strict=False))
    types = [(x.dtype, x.weak) == (y.dtype, y.weak) for x, y in pairs]
    return len(a[1]) == len(b[1]) and all(types) and all(close(x.array, y.array) for x, y in pairs)
