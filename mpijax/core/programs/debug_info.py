"""Defines `DebugInfo`: what error messages say about a traced function."""

from __future__ import annotations

from collections.abc import Callable, Sequence


class DebugInfo:
    """What error messages say about a traced function.

    Args:
      traced_for: the transformation, as `"jit"`.
      func_src_info: `name at file:line`, or the name alone.
      arg_names: the names of the array arguments, "" for an argument without a name; or a function that returns them.
      result_paths: the position of each result in what the function returns, as `"result[0]"`; None if unknown.

    >>> mpijax.extend.core.DebugInfo("jit", "step at model.py:7", ("x",), None).func_name
    'step'
    """

    __slots__ = ("_arg_names", "func_src_info", "result_paths", "traced_for")

    def __init__(
        self,
        traced_for: str,
        func_src_info: str,
        arg_names: Sequence[str] | Callable[[], Sequence[str]] | None,
        result_paths: Sequence[str] | None,
    ):
        self.traced_for = traced_for
        self.func_src_info = func_src_info
        self._arg_names = arg_names
        self.result_paths = result_paths

    @property
    def arg_names(self) -> tuple[str, ...] | None:
        if callable(self._arg_names):
            self._arg_names = self._arg_names()
        return None if self._arg_names is None else tuple(self._arg_names)

    @property
    def func_name(self) -> str:
        return self.func_src_info.split(" ")[0]

    def __repr__(self) -> str:
        return (
            f"DebugInfo(traced_for={self.traced_for!r}, func_src_info={self.func_src_info!r}, "
            f"arg_names={self.arg_names!r}, result_paths={self.result_paths!r})"
        )
