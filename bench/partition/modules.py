"""`jax`, `jnp` and `lax` of the system of this process, for programs that are written once.

The variable MPIJAX_BENCH_SYSTEM names the system: "jax" or, by default, "mpijax".
"""

import importlib
import os

SYSTEM = os.environ.get("MPIJAX_BENCH_SYSTEM", "mpijax")

jax = importlib.import_module(SYSTEM)
jnp = importlib.import_module(f"{SYSTEM}.numpy")
lax = importlib.import_module(f"{SYSTEM}.lax")
sharding = importlib.import_module(f"{SYSTEM}.sharding")
