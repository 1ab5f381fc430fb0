"""Rules are loaded when they are asked for."""

import subprocess
import sys

import pytest

from mpijax.scalar import rule_for

SCRIPT = """
from importlib import import_module, reload
from mpijax.scalar import MODULES
from mpijax.scalar.registry import RULES

modules = {name: import_module(f"mpijax.scalar.{name}") for name in MODULES}
for name, module in modules.items():
    RULES.clear()
    reload(module)
    assert sorted(RULES) == sorted(MODULES[name].split()), name
"""


def test_the_table_names_the_rules_of_each_module():
    subprocess.run([sys.executable, "-c", SCRIPT], check=True)


def test_a_rule_loads_its_module_only():
    script = (
        "import sys, mpijax.scalar as s\ns.rule_for('sin')\n"
        "print(*(m for m in s.MODULES if f'mpijax.scalar.{m}' in sys.modules))"
    )
    out = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["trigonometric"]


def test_an_unknown_name():
    with pytest.raises(KeyError, match="no_such_operation"):
        rule_for("no_such_operation")
