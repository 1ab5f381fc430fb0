"""The base class of sparse arrays: `JAXSparse`."""

from __future__ import annotations

import abc
import math
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from mpijax.core.tracing.tracer import Tracer


class JAXSparse(abc.ABC):
    """A sparse array of any format: values `data`, a `shape`, and `todense()`.

    >>> from mpijax.experimental import sparse
    >>> isinstance(sparse.eye(3), sparse.JAXSparse)
    True
    """

    data: Any
    shape: tuple[int, ...]
    __hash__ = None  # type: ignore[assignment]
    # Arrays leave operators with a sparse array to the sparse array.
    __array_priority__ = 1000

    ndim = property(lambda self: len(self.shape))
    size = property(lambda self: math.prod(self.shape))
    dtype: Any = property(lambda self: self.data.dtype)
    T = property(lambda self: self.transpose())

    @property
    @abc.abstractmethod
    def nse(self) -> int:
        """The number of stored elements."""

    @abc.abstractmethod
    def tree_flatten(self) -> tuple[Any, Any]:
        """(the arrays, the other attributes)."""

    @abc.abstractmethod
    def transpose(self, axes: Any = None) -> Any:
        """The array with its axes in another order."""

    @abc.abstractmethod
    def todense(self) -> Any:
        """The dense array; elements at equal coordinates are added."""

    def __len__(self) -> int:
        return self.shape[0]

    def __repr__(self) -> str:
        name = type(self).__name__
        try:
            text = f"{name}({np.dtype(self.dtype).name}{list(self.shape)}, nse={self.nse}{self._shown()})"
        except Exception:  # objects that transformations put instead of arrays have no shape
            text = f"{name}(<invalid>)"
        return f"{type(self.data).__name__}[{text}]" if isinstance(self.data, Tracer) else text

    def _shown(self) -> str:
        return "".join(f", {key}={n}" for key in ("n_batch", "n_dense") if (n := getattr(self, key, 0)))

    def block_until_ready(self) -> JAXSparse:
        return self


def _refusal(name: str) -> Callable:
    def refuse(self: Any, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise NotImplementedError(
            f"{type(self).__name__} does not support {name}. Convert it with to_bcoo(), or to a dense array with "
            "todense()."
        )

    refuse.__name__ = name
    return refuse


for _name in (
    "sum", "__neg__", "__pos__", "__matmul__", "__rmatmul__", "__mul__", "__rmul__", "__add__", "__radd__", "__sub__",
    "__rsub__", "__getitem__",
):  # fmt: skip
    setattr(JAXSparse, _name, _refusal(_name))
