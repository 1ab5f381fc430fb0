"""Options: where values come from, who sees them, and the key of jit caches."""

import itertools
import os
import subprocess
import sys
import threading

import jax
import pytest
import quickly

import mpijax
from mpijax.core.base import config, option
from mpijax.core.base.config import config as options


@pytest.fixture(autouse=True)
def restored():
    before = options.values
    yield
    for name, value in before.items():
        if options.read(name) != value:
            config.update(name, value)


def in_thread(function):
    """The result of a call in another thread."""
    results = []
    thread = threading.Thread(target=lambda: results.append(function()))
    thread.start()
    thread.join()
    return results[0]


def test_update_read_and_attribute():
    assert options.jax_enable_x64 is False
    config.update("jax_enable_x64", True)
    assert options.jax_enable_x64 is options.read("jax_enable_x64") is config.enable_x64.value is True
    assert options.x64_enabled and options.values["jax_enable_x64"]
    assert "jax_enable_x64" in dir(options)


@pytest.mark.parametrize("ask", [lambda: config.update("jax_foo", 1), lambda: options.read("jax_foo")])
def test_unknown_option(ask):
    with pytest.raises(AttributeError, match="Unrecognized config option: jax_foo"):
        ask()


def test_unknown_attribute_and_assignment():
    with pytest.raises(AttributeError, match="no attribute 'jax_foo'"):
        _ = options.jax_foo
    with pytest.raises(AttributeError, match="config.update"):
        options.jax_enable_x64 = True


@pytest.mark.parametrize(
    "name, value, error, phrase",
    [
        ("jax_numpy_rank_promotion", "perhaps", ValueError, "must be in .*'allow', 'warn', 'raise'"),
        ("jax_numpy_rank_promotion", None, ValueError, "must be in"),
        ("jax_default_matmul_precision", 3, ValueError, "must be None or in"),
        ("jax_enable_x64", "perhaps", ValueError, "invalid truth value 'perhaps'"),
        ("jax_num_cpu_devices", "many", ValueError, "must be of type int, got 'many'"),
        ("jax_num_cpu_devices", None, TypeError, "must be of type int, got None"),
    ],
)
def test_unusable_values(name, value, error, phrase):
    before = options.read(name)
    with pytest.raises(error, match=phrase):
        config.update(name, value)
    assert options.read(name) == before


def test_optional_values():
    config.update("jax_default_matmul_precision", "highest")
    config.update("jax_default_matmul_precision", None)
    assert options.jax_default_matmul_precision is None


def test_override_ends_with_its_block_also_on_errors():
    with config.enable_x64(True):
        assert options.jax_enable_x64
        with config.enable_x64(False):
            assert not options.jax_enable_x64
        assert options.jax_enable_x64
    with pytest.raises(ZeroDivisionError), config.enable_x64():
        1 / 0  # noqa: B018
    assert not options.jax_enable_x64


def test_override_as_decorator_and_reentered():
    @config.enable_x64(True)
    def function():
        """Its own text."""
        return options.jax_enable_x64

    assert function() and function.__doc__ == "Its own text." and not options.jax_enable_x64
    block = config.numpy_rank_promotion("raise")
    with block, config.numpy_rank_promotion("warn"), block:
        assert options.jax_numpy_rank_promotion == "raise"
    assert options.jax_numpy_rank_promotion == "allow"


def test_a_block_needs_a_value_unless_it_turns_something_on():
    with pytest.raises(TypeError, match="numpy_rank_promotion config option requires an argument"):
        config.numpy_rank_promotion()
    with config.debug_nans():
        assert options.jax_debug_nans
    with pytest.raises(TypeError, match="no truth value"):
        bool(config.enable_x64)


def test_threads_see_updates_but_not_each_others_blocks():
    with config.enable_x64(True):
        assert in_thread(lambda: options.jax_enable_x64) is False
        config.update("jax_debug_nans", True)
        assert in_thread(lambda: options.jax_debug_nans) is True
    with config.debug_nans(False):
        assert in_thread(lambda: options.jax_debug_nans) is True


def test_trace_key_is_equal_exactly_when_the_settings_are():
    keys = {}
    for x64, nans, rank in itertools.product((False, True), (False, True), ("allow", "raise")):
        with config.enable_x64(x64), config.debug_nans(nans), config.numpy_rank_promotion(rank):
            keys[x64, nans, rank] = config.trace_key()
            with config.log_compiles(True):  # changes no trace
                assert config.trace_key() == keys[x64, nans, rank]
    assert len(set(keys.values())) == len(keys)
    for (x64, nans, rank), key in keys.items():
        with config.numpy_rank_promotion(rank), config.debug_nans(nans), config.enable_x64(x64):
            assert config.trace_key() == options.trace_key() == config.values.trace_key == key
    assert config.trace_key() == keys[False, False, "allow"]


def test_trace_key_tells_equal_values_of_different_types_apart():
    keys = []
    for value in (1, True, 1.0):
        with config.default_device(value):
            keys.append(config.trace_key())
    assert len(set(keys)) == 3


def test_trace_key_within_a_block_follows_updates_also_of_other_threads():
    with config.enable_x64(True):
        before = config.trace_key()
        in_thread(lambda: config.update("jax_debug_nans", True))
        after = config.trace_key()
        assert after != before
        in_thread(lambda: config.update("jax_debug_nans", False))
        assert config.trace_key() == before
    config.update("jax_debug_nans", True)
    with config.enable_x64(True):
        assert config.trace_key() == after


def test_a_thread_may_end_during_an_update(monkeypatch):
    """As threads of deep calls do, which start with the overrides of their caller."""
    starts, reads, ended = threading.Event(), threading.Event(), threading.Event()
    intern_settings = option._intern_settings

    def slow(overrides):
        if overrides:
            reads.set()
            ended.wait(0.2)
        return intern_settings(overrides)

    def work():
        with config.enable_x64(True):
            starts.set()
            reads.wait(30)
            option.end_of_thread()
            ended.set()

    thread = threading.Thread(target=work)
    thread.start()
    starts.wait(30)
    monkeypatch.setattr(option, "_intern_settings", slow)
    config.update("jax_debug_nans", True)
    thread.join()
    assert ended.is_set()


@pytest.mark.parametrize(
    "environment, expected",
    [
        ({}, "False allow 5"),
        ({"JAX_ENABLE_X64": "1", "JAX_NUMPY_RANK_PROMOTION": "warn"}, "True warn 5"),
        ({"MPIJAX_ENABLE_X64": "off", "JAX_ENABLE_X64": "on"}, "False allow 5"),
        ({"MPIJAX_ENABLE_X64": "TRUE"}, "True allow 5"),
        ({"JAX_CPU_GET_GLOBAL_TOPOLOGY_TIMEOUT_MINUTES": "7"}, "False allow 7"),
    ],
)
@pytest.mark.one_in(2)
def test_environment(environment, expected):
    program = (
        "from mpijax.core.base.config import config as c; "
        "print(c.jax_enable_x64, c.jax_numpy_rank_promotion, c.jax_cpu_get_global_topology_timeout_minutes)"
    )
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "MPIJAX_"))}
    done = subprocess.run(
        [sys.executable, "-c", program], env=clean | environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == expected


@pytest.mark.parametrize(
    "environment, expected",
    [({}, 1 << 30), ({"MPIJAX_CACHE_MAX_SIZE": "5"}, 5), ({"MPIJAX_CACHE_MAX_SIZE": "5", "JAX_COMPILATION_CACHE_MAX_SIZE": "-1"}, -1)],
)
def test_an_option_with_a_variable_of_its_own(environment, expected):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("JAX_", "MPIJAX_"))}
    program = "from mpijax.core.base.config import config as c; print(c.jax_compilation_cache_max_size)"
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=clean | environment, capture_output=True, text=True, check=True)
    assert int(done.stdout) == expected


def test_unusable_environment_names_the_variable():
    done = subprocess.run(
        [sys.executable, "-c", "import mpijax.core.base.config"],
        env=os.environ | {"JAX_ENABLE_X64": "perhaps"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode and "JAX_ENABLE_X64" in done.stderr and "'perhaps'" in done.stderr


def test_jaxs_options_are_known_and_default_as_there():
    theirs = jax.config.values | quickly.DEFAULTS
    assert not theirs.keys() - options.values.keys()
    # The environment, an enum, the version of mpijax's own files, and the limit of a cache that JAX leaves off.
    elsewhere = {"jax_platforms", "jax_logging_level", "jax_explicit_x64_dtypes", "jax_export_calling_convention_version"}
    elsewhere.add("jax_compilation_cache_max_size")
    defined = {option.name: option.default for option in vars(config).values() if hasattr(option, "parse")}
    assert not theirs.keys() - defined.keys()
    for name in theirs.keys() - elsewhere:
        assert options.read(name) == theirs[name], name


def test_a_word_that_an_option_does_not_take_is_refused_as_by_jax():
    said = []
    for library in (jax, mpijax):
        with pytest.raises(ValueError) as caught:
            library.config.update("jax_numpy_rank_promotion", "perhaps")
        said.append(str(caught.value).rstrip("."))
    assert said[1] == f"{said[0]} for jax_numpy_rank_promotion"


def test_contexts_of_users_are_not_among_the_options():
    before = options.values.keys()
    context = mpijax.make_user_context("outer")
    with context("inner"):
        assert options.values.keys() == before


def test_checking_leaks():
    assert config.checking_leaks() is False
    with config.check_tracer_leaks():
        assert config.checking_leaks() is True


ABSL = """
import sys, types

class Flags(dict):
    def define(self, name, default, doc): self[name] = default
flags = types.ModuleType("absl.flags")
flags.FLAGS = Flags()
flags.DEFINE_bool = flags.DEFINE_string = flags.FLAGS.define
"""


@pytest.mark.parametrize(
    "arguments, expected",
    [
        (["--jax_enable_x64", "--mine=3"], "True allow"),
        (["--nojax_enable_x64", "--jax_numpy_rank_promotion=raise"], "False raise"),
        (["-jax_enable_x64=1", "--jax_numpy_rank_promotion", "warn", "jax_debug_nans"], "True warn"),
        ([], "False allow"),
    ],
)
@pytest.mark.one_in(2)
def test_options_on_the_command_line(arguments, expected):
    program = ABSL + (
        "sys.modules['absl.flags'] = flags\nimport mpijax\nmpijax.config.parse_flags_with_absl()\n"
        "c = mpijax.config\nprint(c.jax_enable_x64, c.jax_numpy_rank_promotion)\n"
        "assert flags.FLAGS['jax_debug_nans'] is False and flags.FLAGS['jax_platforms'] is None\n"
    )
    done = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == expected, done.stderr


def test_an_option_on_the_command_line_is_checked():
    program = "import mpijax; mpijax.config.parse_flags_with_absl()"
    done = subprocess.run([sys.executable, "-c", program, "--jax_enable_x64=perhaps"], capture_output=True, text=True, check=False)
    assert done.returncode and "'perhaps'" in done.stderr
