"""Every primitive has each of its rules, says why it has none, or has the slot's default on purpose."""

import importlib
import inspect
import re

import pytest

import mpijax  # noqa: F401  (puts the wiring in place)
from mpijax.core.base import provided
from mpijax.core.rules import lowering
from mpijax.core.rules.default_rules import rule_of
from mpijax.core.rules.factors import FactorRule
from mpijax.core.rules.primitive import Primitive, Unsupported
from mpijax.core.rules.registry import registry

provided.define_primitives(lambda: False)
for special in ("bessel", "errors", "gamma", "hypergeometric", "integrals"):  # loaded at their first use
    importlib.import_module(f"mpijax.scipy.special.{special}")
importlib.import_module("mpijax.experimental.sparse.primitives")

# Another test of the same process may have defined some, too.
PRIMITIVES = [p for p in registry.values() if type(p).__module__ != "mpijax.extend.primitive"]

# Lowerings that say how ranks do an operation: by the rules of the operations that it consists of, or on this rank's
# shards, which is what an exchange, a body and a requested sharding are about.
SPREAD = (
    lowering.Decompose,
    lowering.InlineJaxpr,
    lowering.ControlFlow,
    lowering.Partitioned,
    lowering.Reshard,
    lowering.Communication,
)

# Each rank computes these from whole operands.
WHOLE = {
    "Python's functions see whole arrays": "buffer_callback io_callback pure_callback",
    "a user's machine code sees whole arrays": "ffi_call numba_call",
    "a user's function of a scalar runs as a callback": "scatter_apply",
    "it has no operands, or only scalars": "iota rng_uniform",
    "it has no array": "after_all create_token dce_sink loop_mark loop_part",
    "it looks at what this rank has": "nan_check",
    "another primitive with a rule becomes it, after it is spread over the ranks": (
        "convolution fft_hosted fft_native sort_rows"
    ),
    "it has no lowering": "precv psend",
}

# Operations with a program inside, for which the default is right: they consume the keys among their operands.
CONSUME_KEYS = {"composite", "custom_vmap_call", "linear_call"}


def keys(condition) -> set[str]:
    return {p.key for p in PRIMITIVES if condition(p)}


@pytest.mark.parametrize("slot", ["type_rule", "reference", "jvp", "transpose", "batch"])
def test_rules_are_functions_or_say_why_there_is_none(slot):
    assert keys(lambda p: not callable(getattr(p, slot))) == set()


def test_lowerings_are_records_of_the_compiler_or_say_why_there_is_none():
    assert keys(lambda p: type(p.lower).__module__ != lowering.__name__ and not isinstance(p.lower, Unsupported)) == set()


def test_a_slot_without_a_rule_gives_a_reason():
    slots = [s for s in vars(PRIMITIVES[0]) if any(isinstance(getattr(p, s), Unsupported) for p in PRIMITIVES)]
    reasons = {getattr(p, s).reason for p in PRIMITIVES for s in slots if isinstance(getattr(p, s), Unsupported)}
    assert slots and [r for r in reasons if len(r.split()) < 4] == []


def test_every_primitive_can_be_spread_over_ranks_or_is_whole_for_a_reason():
    whole = {name for names in WHOLE.values() for name in names.split()}
    assert keys(lambda p: rule_of(p) is None and not isinstance(p.lower, SPREAD)) == whole


def test_communication_has_effects_and_says_over_which_axes_results_vary():
    communicates = keys(lambda p: isinstance(p.lower, lowering.Communication))
    over_mesh = keys(lambda p: isinstance(p.lower, lowering.Communication) and not p.lower.on_communicator)
    assert communicates <= keys(lambda p: p.effects is not None)
    assert over_mesh <= keys(lambda p: p.vma is not None or p.inner)


def test_programs_inside_pass_on_effects_and_keys():
    inside = keys(lambda p: isinstance(p.lower, (lowering.InlineJaxpr, lowering.ControlFlow, lowering.Partitioned)))
    assert inside <= keys(lambda p: p.effects is not None)
    assert inside - keys(lambda p: p.keys is not None) == CONSUME_KEYS


def test_what_reads_or_writes_a_window_says_its_bounds():
    """Then `checkify` finds positions outside of the array."""
    windows = keys(lambda p: isinstance(p.lower, lowering.Structural) and p.lower.window is not None)
    assert windows and windows <= keys(lambda p: p.bounds is not None)


# Each rank prints or runs its part; a loop's body decides; copies are parts that repeat.
PROCEDURES = {"debug_callback", "debug_print", "scan", "tile"}


def test_sharding_rules_say_how_axes_correspond():
    """Partitioner and types then read one rule. Callbacks and others without a rule get whole operands."""
    own = keys(lambda p: p.sharding is not None)
    assert own - keys(lambda p: isinstance(p.sharding, FactorRule)) == PROCEDURES


def test_every_slot_is_described():
    described = re.findall(r"^  (\w+): ", inspect.getdoc(Primitive), re.MULTILINE)
    assert {*inspect.signature(Primitive).parameters} == {*described}
