"""Bytes that compiled programs need, as `memory_analysis()` of the compiled function tells.

What processes really held at their peak stands in the last columns of every row.
"""

from bench.case import case
from bench.cases import networks
from bench.cases.elementwise import chain, data
from bench.cases.reductions import matrix


@case("memory/f32 4M chain of six", ratio=1, mode="memory")
def chain_of_six(backend):
    return backend.jax.jit(chain(backend)), data(backend, "float32")


@case("memory/4096x1024 softmax", ratio=1, mode="memory")
def softmax(backend):
    return backend.jax.jit(backend.nn.softmax), matrix(backend)


@case("memory/MLP gradient, batch 128", ratio=1, mode="memory")
def mlp_gradient(backend):
    f = backend.jax.jit(backend.jax.value_and_grad(networks.mlp_loss(backend)))
    batch = networks.mlp_batch(backend, networks.SIZES, 128)
    return f, networks.mlp_parameters(backend, networks.SIZES), *batch


@case("memory/attention block gradient", ratio=1, mode="memory")
def attention_gradient(backend):
    return networks.attention_gradient(backend)
