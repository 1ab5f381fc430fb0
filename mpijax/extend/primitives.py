"""``mpijax.extend.core.primitives``: mpijax's own primitives by JAX's names, such as `add_p`."""

from typing import Any

from mpijax.core.primitive import registry

# Where JAX's name is not that of the primitive.
_NAMES = {
    "add_jaxvals_p": "add_any",
    "linear_solve_p": "custom_linear_solve",
    "remat_p": "remat2",
    "scatter_add_p": "scatter-add",
    "scatter_mul_p": "scatter-mul",
    "scatter_sub_p": "scatter-sub",
}


def __getattr__(name: str) -> Any:
    key = _NAMES.get(name, name.removesuffix("_p"))
    if name.endswith("_p") and not name.startswith("_"):
        for spelling in (key, f"{key}_"):
            try:
                return registry[spelling]
            except KeyError:
                continue
    raise AttributeError(f"mpijax has no primitive {name!r}")
