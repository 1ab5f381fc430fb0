"""Values print as their blocks in a `shard_map` without `jit`, as in JAX."""

import subprocess
import sys

import pytest

PROGRAM = """if True:
    import numpy as np
    from {library} import NamedSharding, P, config, debug, jit, lax, make_mesh, shard_map, sharding
    from {library} import numpy as jnp
    config.update("jax_num_cpu_devices", 4)
    auto = (sharding.AxisType.Auto,)
    line, square = make_mesh((2,), ("i",), axis_types=auto), make_mesh((2, 2), ("a", "b"), axis_types=auto * 2)

    @shard_map(mesh=line, in_specs=P("i"), out_specs=P())
    def total(x):
        print("BEFORE", x)
        y = lax.psum(2 * x, "i")
        print("AFTER", y, f"{{y.sum()}}", [lax.axis_index("i")], str(x.shape))
        return y

    print(total(jnp.arange(6.0)))
    product = shard_map(
        lambda x, y: print(x @ y) or x @ y,
        mesh=square, in_specs=(P("a", "b"), P("b", None)), out_specs=P("a", None), check_vma=False,
    )
    print(product(jnp.arange(8.0).reshape(2, 4), np.ones((4, 2), np.float32)))
"""


@pytest.mark.slow  # by default the next one prints without JAX
def test_values_print_as_in_jax():
    pytest.importorskip("jax")
    texts = [
        subprocess.run([sys.executable, "-c", PROGRAM.format(library=name)], capture_output=True, text=True, check=True)
        for name in ("jax", "mpijax")
    ]
    assert texts[0].stdout == texts[1].stdout and "On cpu:1 at mesh coordinates (i,) = (1,):" in texts[1].stdout


OWN = """if True:
    import mpijax as jax
    import mpijax.numpy as jnp
    from mpijax import P, lax
    jax.config.update("jax_num_cpu_devices", 2)
    mesh = jax.make_mesh((2,), ("i",))

    def f(x):
        jax.debug.print("once {}", x[0])
        y = jax.pure_callback(lambda v: print("called") or v, x, x)
        print(y)
        return x

    seen = []
    jax.shard_map(f, mesh=mesh, in_specs=P(), out_specs=P())(jnp.ones(1))
    jax.jit(jax.shard_map(lambda x: print(x) or x, mesh=mesh, in_specs=P("i"), out_specs=P("i")))(jnp.ones(2))
    jax.shard_map(lambda x: seen.append(x) or x, mesh=mesh, in_specs=P("i"), out_specs=P("i"))(jnp.ones(2))
    print(seen[0])
"""


def test_values_of_a_jitted_function_print_their_types():
    done = subprocess.run([sys.executable, "-c", OWN], capture_output=True, text=True, check=True)
    assert done.stdout.count("once") == 1
    assert done.stdout.count("JitTracer(float32[1]{V:i})") == 2  # under jit, and after the end of the trace
