"""``mpijax.ffi``: C functions in programs, by JAX's names.

The names and arguments are those of ``jax.ffi``; the C functions are not: XLA's handlers need XLA. A target here is
`void f(void **buffers, const int64_t *call)`, which `mpijax/ffi.h` in `include_dir()` explains.
"""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any

from mpijax.missing import missing as _missing
from mpijax.ops.callbacks.ffi_call import ffi_call
from mpijax.ops.callbacks.ffi_call import targets as _targets

__all__ = ["ffi_call", "include_dir", "pycapsule", "register_ffi_target", "register_ffi_type_id"]

_CAPSULE = b"mpijax.ffi"
_PLATFORMS = ("cpu", "host", "cuda", "rocm", "gpu", "tpu")
_INSTEAD = "write the function with mpijax/ffi.h of mpijax.ffi.include_dir(), and call it with ffi_call"

build_ffi_lowering_function = _missing("ffi.build_ffi_lowering_function", _INSTEAD)
ffi_lowering = _missing("ffi.ffi_lowering", _INSTEAD)
register_ffi_target_as_batch_partitionable = _missing(
    "ffi.register_ffi_target_as_batch_partitionable", "call ffi_call inside shard_map, on each rank's shard"
)
register_ffi_type = _missing("ffi.register_ffi_type", "keep the state of a target in its own library")


def register_ffi_type_id(name: str, obj: Any, platform: str = "cpu") -> None:
    """Raises ValueError, as in JAX, which has given it up: state of a target is kept in its own library.

    >>> try:
    ...     mpijax.ffi.register_ffi_type_id("state", None)
    ... except ValueError:
    ...     print("not supported")
    not supported
    """
    raise ValueError("register_ffi_type_id is not supported. Keep the state of a target in its own library.")


def include_dir() -> str:
    """The folder to compile with (`-I`), in which `mpijax/ffi.h` is.

    >>> import os
    >>> os.path.exists(os.path.join(mpijax.ffi.include_dir(), "mpijax", "ffi.h"))
    True
    """
    return str(Path(__file__).parent / "include")


def pycapsule(funcptr: Any) -> Any:
    """A C function as a PyCapsule for `register_ffi_target`.

    Args:
      funcptr: a function of a library loaded with ctypes, or its address as an integer.

    >>> import ctypes
    >>> type(mpijax.ffi.pycapsule(ctypes.CDLL(None).abs)).__name__
    'PyCapsule'
    """
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, (ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p)
    return new(_address("pycapsule", funcptr), _CAPSULE, None)


def register_ffi_target(name: str, fn: Any, platform: str = "cpu", api_version: int = 1, **kwargs: Any) -> None:
    """Give a C function the name by which `ffi_call` calls it.

    Args:
      name: must be new, or have been given to the same function.
      fn: what `pycapsule` returns, a function loaded with ctypes, or an address; it must stay loaded.
      platform: "cpu". Functions of other platforms are accepted, and never called.
      api_version: 1.

    Raises:
      TypeError: for anything else, also for functions of XLA's interface that can be recognized.
      ValueError: if the name is taken by another function.

    >>> import ctypes
    >>> mpijax.ffi.register_ffi_target("a_function_of_c", ctypes.CDLL(None).abs)
    """
    if kwargs or api_version != 1:
        raise ValueError(
            f"register_ffi_target: api_version={api_version} and {sorted(kwargs)} belong to XLA's interface. In "
            "mpijax, api_version must be 1, without other arguments."
        )
    if platform.lower() not in _PLATFORMS:
        raise ValueError(f"register_ffi_target: platform must be one of {_PLATFORMS}, got {platform!r}")
    address = _address(f"register_ffi_target({name!r})", fn)
    if platform.lower() not in ("cpu", "host"):
        return
    if _targets.setdefault(name, address) != address:
        raise ValueError(
            f"The FFI target {name!r} is already registered for another function, which compiled programs may use. "
            "Choose another name."
        )


def _address(who: str, fn: Any) -> int:
    """Where a function is, given as a capsule, a ctypes function or an integer."""
    if isinstance(fn, dict):
        raise TypeError(
            f"{who}: functions by stage {sorted(fn)} belong to XLA's interface. To use such a function in mpijax, "
            f"{_INSTEAD}."
        )
    if type(fn).__name__ == "PyCapsule":
        return _capsule_address(who, fn)
    if isinstance(fn, int) and not isinstance(fn, bool):
        address: int | None = fn
    elif isinstance(fn, ctypes._CFuncPtr):  # type: ignore[attr-defined]
        address = ctypes.cast(fn, ctypes.c_void_p).value
    else:
        raise TypeError(
            f"{who}: expected a capsule made by mpijax.ffi.pycapsule, a C function loaded with ctypes, or an address, "
            f"got {fn!r} of type {type(fn).__name__}."
        )
    if not address or not 0 < address < 1 << 8 * ctypes.sizeof(ctypes.c_void_p):
        raise ValueError(f"{who}: the address of the function is {address}")
    return address


def _capsule_address(who: str, capsule: Any) -> int:
    api = ctypes.pythonapi
    api.PyCapsule_GetName.restype, api.PyCapsule_GetName.argtypes = ctypes.c_char_p, (ctypes.py_object,)
    api.PyCapsule_GetPointer.restype = ctypes.c_void_p
    api.PyCapsule_GetPointer.argtypes = (ctypes.py_object, ctypes.c_char_p)
    name = api.PyCapsule_GetName(capsule)
    if name is None or name.startswith((b"xla", b"jax")):
        made = "without a name, such as those of jax.ffi.pycapsule" if name is None else f"named {name.decode()!r}"
        raise TypeError(
            f"{who}: a capsule {made}, holds a handler of XLA's interface, which only XLA can call. To use such a "
            f"function in mpijax, {_INSTEAD}, wrapped with mpijax.ffi.pycapsule."
        )
    return api.PyCapsule_GetPointer(capsule, name)
