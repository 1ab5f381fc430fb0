"""Starts a program as Python does, for ``python -m mpijax.as_jax``."""

from __future__ import annotations

import os
import runpy
import sys
from types import CodeType
from typing import Any

_USAGE = "usage: python -m mpijax.as_jax script.py args ... | -m module args ... | -c code args ..."


def main() -> int:
    """Run the program and return its exit status. The status is 1 if the program raises an exception."""
    words = sys.argv[1:]
    if not words or words[0] in ("-h", "--help") or (words[0] in ("-m", "-c") and len(words) == 1):
        print(_USAGE, file=sys.stderr)
        return 2
    try:
        _start(words)
    except Exception as error:
        trace = error.__traceback__
        while trace is not None and _is_starter(trace.tb_frame.f_code):
            trace = trace.tb_next
        error.__traceback__ = trace
        sys.excepthook(type(error), error, trace)
        return 1
    return 0


def _is_starter(code: CodeType) -> bool:
    """Whether a frame belongs to the code that starts the program."""
    return code.co_filename in (__file__, "<frozen runpy>", runpy.__file__)


def _start(words: list[str]) -> None:
    """Start the program as Python would: its folder first in `sys.path`, its arguments in `sys.argv`."""
    if words[0] == "-m":
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    elif words[0] == "-c":
        sys.argv = ["-c", *words[2:]]
        _run(compile(words[1], "<string>", "exec", dont_inherit=True), {})
    else:
        _start_file(words)


def _start_file(words: list[str]) -> None:
    file = words[0]
    sys.argv = words
    if os.path.isdir(file) or file.endswith((".zip", ".pyz")):
        sys.path.pop(0)
        runpy.run_path(file, run_name="__main__")
        return
    try:
        with open(file, "rb") as source:
            code = compile(source.read(), file, "exec", dont_inherit=True)
    except OSError as error:
        raise SystemExit(f"mpijax.as_jax: cannot open {file!r}: {error.strerror}") from None
    if not sys.flags.safe_path:
        sys.path[0] = os.path.dirname(os.path.realpath(file))
    _run(code, {"__file__": file})


def _run(code: CodeType, names: dict[str, Any]) -> None:
    """Run code in the module `__main__` itself, which pickle and multiprocessing use."""
    main = sys.modules["__main__"].__dict__
    main.clear()
    main.update(names, __name__="__main__", __doc__=None, __package__=None, __loader__=None, __spec__=None)
    main["__builtins__"] = sys.modules["builtins"]
    exec(code, main)
