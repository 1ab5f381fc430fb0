"""A forked child finds the locks free that threads of its parent hold."""

import os
import subprocess
import sys

import pytest

JOB = """
import os, signal, sys, threading

import mpijax as jax
import mpijax.numpy as jnp

jax.jit(lambda x: jnp.sin(x))(1.0)
NAMES = {
    "mpijax.compiler.backend.library": "_loading", "mpijax.core.base.collector": "_lock", "mpijax.core.base.lazy_dataclass": "_lock",
    "mpijax.core.base.option": "_lock", "mpijax.runtime.program.code": "_lock", "mpijax.transforms.jit": "_jitted_lock",
}
held = threading.Event()

def hold():
    for module, name in NAMES.items():
        getattr(sys.modules[module], name).acquire()
    held.set()
    threading.Event().wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()
child = os.fork()
if child:
    os._exit(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) & 255)
signal.alarm(30)
with jax.enable_x64(True):
    assert jax.jit(lambda x: jnp.cos(x) * 3)(0.0) == 3
jax.clear_caches()
os._exit(0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
def test_a_forked_child_compiles_while_a_thread_of_its_parent_compiles(tmp_path):
    environment = os.environ | {"MPIJAX_CACHE_DIR": str(tmp_path)}
    subprocess.run([sys.executable, "-W", "ignore", "-c", JOB], env=environment, check=True, timeout=120)
