"""Tokens: values without data that express dependences between operations in a Jaxpr.

The order of communication and callbacks is that of the source, with or without tokens. They exist for programs that
pass them on, as XLA's operations require. An array of tokens takes no memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mpijax.core import dtypes
from mpijax.core.rules.lowering import HostCall
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.types.avals import ShapedArray
from mpijax.core.types.typeof import typeof
from mpijax.transforms.zeros import Zero

abstract_token = ShapedArray((), dtypes.TokenDType())


class _TypesOfTokens(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return isinstance(x, ShapedArray) and isinstance(x.dtype, dtypes.TokenDType)


class AbstractToken(metaclass=_TypesOfTokens):
    """The type of tokens; there is only one.

    >>> isinstance(mpijax.typeof(lax.create_token()), mpijax.extend.core.AbstractToken)
    True
    """

    def __new__(cls) -> ShapedArray:  # type: ignore[misc]
        return abstract_token


class _Tokens(type):
    def __instancecheck__(cls, x: Any) -> bool:
        return is_token(x)


class Token(metaclass=_Tokens):
    """A token. The constructor ignores its argument.

    >>> isinstance(lax.create_token(), mpijax.extend.core.Token)
    True
    """

    def __new__(cls, buf: Any = None) -> Any:
        return create_token()


def is_token(x: Any) -> bool:
    """Whether a value is a token."""
    return isinstance(getattr(x, "aval", None), AbstractToken)


def create_token(_: Any = None) -> Any:
    """A token without dependences. The argument is ignored.

    >>> mpijax.typeof(lax.create_token())
    AbstractToken()
    """
    return create_token_p.bind()


def after_all(*operands: Any) -> Any:
    """A token that depends on all given tokens. Raises TypeError for other operands.

    >>> mpijax.make_jaxpr(lax.after_all)(lax.create_token(), lax.create_token())
    { lambda ; a:Tok b:Tok. let c:Tok = after_all a b in (c,) }
    """
    return after_all_p.bind(*operands)


def _after_all_type(*operands: ShapedArray) -> ShapedArray:
    if not all(isinstance(a, AbstractToken) for a in operands):
        given = ", ".join(a.str_short(True) for a in operands)
        raise TypeError(f"Arguments to after_all must be tokens of lax.create_token(), got {given}")
    return abstract_token


def _no_contents(*_operands: Any) -> np.ndarray:
    return np.zeros(abstract_token.dtype.physical_shape, abstract_token.dtype.physical_dtype)


def _jvp(primals, _tangents):
    out = after_all_p.bind(*primals)
    return out, Zero(typeof(out).to_tangent_aval())


create_token_p = Primitive(
    "create_token",
    type_rule=lambda: abstract_token,
    reference=_no_contents,
    lower=HostCall(_no_contents),
    jvp=Unsupported("create_token has no arguments"),
    transpose=Unsupported("create_token has no arguments"),
    batch=Unsupported("create_token has no arguments"),
    vma=lambda avals, params: None,
)

after_all_p = Primitive(
    "after_all",
    type_rule=_after_all_type,
    reference=_no_contents,
    lower=HostCall(_no_contents),
    jvp=_jvp,
    transpose=Unsupported("tokens have no derivative"),
    batch=Unsupported("a token has no axis to map over"),
    vma=lambda avals, params: None,
)
