"""Private names of JAX that published libraries use, each with its location in mpijax and the libraries that need it.

A row is (JAX's module, the name, its location in mpijax, the libraries). A module of `jax._src` with a file in
`mpijax/_src` takes its names from there; rows of such modules only list the libraries.
"""

from __future__ import annotations

import importlib
from functools import cache
from typing import Any

from mpijax import version
from mpijax.faces import PickledByName

TABLE: tuple[tuple[str, str, str, str], ...] = (
    ("jaxlib._jax", "ArrayImpl", "mpijax.runtime.arrays.array:ArrayImpl", "autoray, by the name of the module"),
    ("jaxlib._jax", "PjitFunction", "mpijax.transforms.jit:PjitFunction", "GPJax"),
    ("jaxlib.xla_client", "Device", "mpijax:Device", "JAXNS"),
    ("jaxlib.xla_extension", "PjitFunction", "mpijax.transforms.jit:PjitFunction", "GPJax"),
    ("jax.interpreters.pxla", "thread_resources", "mpijax._src.mesh:thread_resources", "Haliax"),
    ("jax._src.ad_checkpoint", "saved_residuals", "mpijax.ad_checkpoint:saved_residuals", "Haliax"),
    ("jax._src.ad_util", "stop_gradient_p", "mpijax._src.ad_util:stop_gradient_p", "Equinox"),
    ("jax._src.api", "jit", "mpijax._src.api:jit", "e3nn-jax, JAX's tutorial on primitives"),
    ("jax._src.array", "_reconstruct_array", "mpijax._src.array:_reconstruct_array", "pickles written by JAX"),
    ("jax._src.custom_api_util", "register_custom_decorator_type",
     "mpijax._src.custom_api_util:register_custom_decorator_type", "jaxDecomp"),
    ("jax._src.distributed", "global_state", "mpijax._src.distributed:global_state", "Orbax"),
    ("jax._src.dtypes", "to_complex_dtype", "mpijax._src.dtypes:to_complex_dtype", "tinygp"),
    ("jax._src.hijax", "MappingSpec", "mpijax.core.types.abstract:MappingSpec", "JAX's examples of types of libraries"),
    ("jax._src.interpreters", "mlir", "mpijax._src.interpreters:mlir", "JAX's documentation of jax.export"),
    ("jax._src.interpreters.ad", "CustomVJPException", "mpijax.transforms.custom_vjp:CustomVJPException", "Diffrax"),
    ("jax._src.lax.control_flow", "scan", "mpijax._src.lax.control_flow:scan", "PyTensor"),
    ("jax._src.lax.lax", "add", "mpijax._src.lax.lax:add", "JAX's tutorial on primitives"),
    ("jax._src.lib.mlir.dialects", "hlo", "mpijax._src.lib.mlir.dialects:hlo", "JAX's tutorial on primitives"),
    ("jax._src.literals", "TypedInt", "mpijax._src.literals:TypedInt", "Quax"),
    ("jax._src.lib.xla_client", "Device", "mpijax:Device", "SCICO"),
    ("jax._src.lib.xla_client", "XlaRuntimeError", "mpijax.errors:JaxRuntimeError", "Dynamiqs"),
    ("jax._src.mesh", "thread_resources", "mpijax._src.mesh:thread_resources", "Haliax, Levanter"),
    ("jax._src.numpy.einsum", "_einsum", "mpijax._src.numpy.einsum:_einsum", "Haliax, AQT"),
    ("jax._src.numpy.lax_numpy", "array", "mpijax.numpy:array", "Haliax 1.3"),
    ("jax._src.numpy.ufuncs", "ufunc", "mpijax.numpy.ufuncs.ufunc_type:ufunc", "Esquilax"),
    ("jax._src.public_test_util", "check_close", "mpijax._src.public_test_util:check_close", "tinygp"),
    ("jax._src.partition_spec", "PartitionSpec", "mpijax.sharding:PartitionSpec", "JAXNS"),
    ("jax._src.random", "threefry2x32", "mpijax._src.random.threefry2x32", "Quax's examples"),
    ("jax._src.sharding", "Sharding", "mpijax.sharding:Sharding", "SCICO"),
    ("jax._src.sharding_impls", "canonicalize_sharding", "mpijax.core.tracing.out_sharding:explicit_sharding", "JAXNS"),
    ("jax._src.tree_util", "flatten_one_level", "mpijax._src.tree_util:flatten_one_level", "Orbax"),
    ("jax._src.typing", "SupportsDType", "mpijax._src.typing:SupportsDType", "JAXNS, jaxDecomp"),
    ("jax._src.util", "safe_map", "mpijax.api_util:safe_map", "JAX's tutorial on interpreters of Jaxprs"),
    ("jax._src.xla_bridge", "get_backend", "mpijax._src.xla_bridge:get_backend", "Keras"),
)

# Modules that libraries import without using their names, or only for their version.
_VERSIONS = ("jaxlib", "jaxlib.version", "mpijax.lib")
_UNUSED = ("jaxlib.mlir", "jaxlib.mlir.ir")


@cache
def modules() -> dict[str, dict[str, str]]:
    """{module: {name: its location in mpijax}}, with `jax` modules under mpijax's name for them."""
    found: dict[str, dict[str, str]] = {name: {} for name in (*_VERSIONS, *_UNUSED)}
    for module, name, home, _ in TABLE:
        found.setdefault(module.replace("jax.", "mpijax.", 1) if module.startswith("jax.") else module, {})[name] = home
    return found


class AliasModule(PickledByName):
    """A module that looks up its names at their location in mpijax on first use."""

    def __init__(self, name: str):
        super().__init__(name, "Names of JAX that libraries use.")
        self.__dict__["_homes"] = modules()[name]
        if name in _VERSIONS:
            self.__dict__.update(__version__=version.jax_version, __version_info__=version.__version_info__)

    def __getattr__(self, name: str) -> Any:
        home = self._homes.get(name)
        if home is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        module, _, attribute = home.partition(":")
        found = importlib.import_module(module)
        self.__dict__[name] = found = getattr(found, attribute) if attribute else found
        return found

    def __dir__(self) -> list[str]:
        return sorted({*self.__dict__, *self._homes})
