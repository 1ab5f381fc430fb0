"""What `jax_logging_level` and `jax_debug_log_modules` write to the standard error."""

import logging
import os
import subprocess
import sys

import pytest
from quickly import slow

import mpijax

SET = "jax.config.update({!r}, {!r})"
LEVEL, MODULES = "jax_logging_level", "jax_debug_log_modules"
CALL = "jax.jit(lambda x: x + 1)(2.0)"
FINISHED = "Finished tracing <lambda> for jit"


def written(*lines, **variables):
    program = "\n".join(["import mpijax as jax", *lines])
    environment = {**os.environ, **variables}
    return subprocess.run(
        [sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True
    ).stderr


@pytest.mark.parametrize(
    "lines",
    [
        [SET.format(MODULES, "mpijax.jit")],
        [SET.format(LEVEL, "DEBUG"), SET.format(MODULES, "mpijax.jit")],
        *slow(
            [SET.format(LEVEL, "DEBUG")],
            [SET.format(MODULES, "other, jax._src.dispatch")],
            [SET.format(LEVEL, "ERROR"), SET.format(MODULES, "mpijax")],
        ),
    ],
)
@pytest.mark.one_in(2)
def test_messages_are_written_once(lines):
    text = written(*lines, CALL)
    assert text.count(FINISHED) == 1
    assert text.startswith("DEBUG:")


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [SET.format(LEVEL, "DEBUG"), SET.format(LEVEL, None)],
        *slow(
            [SET.format(LEVEL, "WARNING")],
            [SET.format(LEVEL, "NOTSET")],
            [SET.format(MODULES, "other")],
            [SET.format(MODULES, "jax"), SET.format(MODULES, "")],
        ),
    ],
)
@pytest.mark.one_in(2)
def test_nothing_is_written(lines):
    assert written(*lines, CALL) == ""


def test_the_environment_asks_for_messages():
    assert FINISHED in written(CALL, JAX_LOGGING_LEVEL="DEBUG")
    assert FINISHED in written(CALL, JAX_DEBUG_LOG_MODULES="jax")


def test_levels_of_loggers_come_back():
    logger = logging.getLogger("mpijax.jit")
    logger.setLevel("INFO")
    try:
        mpijax.config.update(MODULES, "mpijax.jit")
        assert logger.level == logging.DEBUG
        mpijax.config.update(MODULES, "")
        assert logger.level == logging.INFO
    finally:
        logger.setLevel("NOTSET")
    assert not logging.getLogger("mpijax").handlers
