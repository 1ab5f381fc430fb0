"""Which messages of this library are written to the standard error: `jax_logging_level`, `jax_debug_log_modules`.
Which operations between ranks are logged: `mpijax_log_operations`.

All loggers are below one, which has the handler. The options set levels.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

_ROOT = "mpijax"
_FORMAT = "{levelname}:{asctime}:{name}:{lineno}: {message}"


class _Levels:
    """The levels of loggers that the options have set, and those before."""

    def __init__(self) -> None:
        self.level: str | None = None
        self.modules: list[str] = []
        self._before: dict[str, int] = {}
        self._handler: Any = None

    def apply(self) -> None:
        """Set the levels anew."""
        logging = importlib.import_module("logging")  # few programs ask for messages
        root = logging.getLogger(_ROOT)
        for name, before in self._before.items():
            logging.getLogger(name).setLevel(before)
        self._before.clear()
        if self._handler is not None:
            root.removeHandler(self._handler)
            self._handler = None
        wanted = {} if self.level in (None, "NOTSET") else {_ROOT: self.level}
        wanted.update(dict.fromkeys(self.modules, "DEBUG"))
        for name, level in wanted.items():
            logger = logging.getLogger(name)
            self._before[name] = logger.level
            logger.setLevel(level)
        if wanted:
            self._handler = logging.StreamHandler(sys.stderr)
            self._handler.setFormatter(logging.Formatter(_FORMAT, style="{"))
            root.addHandler(self._handler)


_levels = _Levels()


def set_level(level: str | None) -> None:
    """Write messages from this level on. None and NOTSET leave it to the program's own configuration."""
    _levels.level = level
    _levels.apply()


def set_modules(names: str | None) -> None:
    """Write all messages of these loggers, separated by commas. A name of a JAX module means all of this library."""
    given = [name.strip() for name in (names or "").split(",")]
    _levels.modules = [_ROOT if name.partition(".")[0] == "jax" else name for name in given if name]
    _levels.apply()


def set_operations(on: bool) -> None:
    """Log the operations between ranks, or stop. A record that is not loaded yet reads the option when it is."""
    record = sys.modules.get("mpijax._ext.record")
    if record is not None:
        record.log_operations(on)
