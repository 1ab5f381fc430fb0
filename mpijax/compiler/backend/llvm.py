"""From LLVM IR text to callable machine code.

`compile_object` parses the text and emits an ELF object for this machine's CPU; `load_object` puts an object
into memory and returns the addresses of its functions. The IR of kernels arrives vectorised and clean, so no
optimisation passes run but the inlining of helper functions where there are any: code generation
(scheduling, register allocation, hoisting of constants) does the rest. Loops around kernels get LLVM's own passes.
LLVM is imported at the first compilation, not before.
"""

from __future__ import annotations

import threading
from functools import cache

from mpijax.compiler.backend.disk_cache import DiskCache, cache_key, host_id
from mpijax.compiler.backend.elf import UnsupportedObject, global_functions, load_elf

__all__ = ["DiskCache", "LLVMError", "cache_key", "compile_object", "host_id", "load_object", "to_assembly"]

_lock = threading.Lock()


class LLVMError(RuntimeError):
    """LLVM refused a module: the message holds LLVM's own and the lines it is about."""


@cache
def _binding():
    # Deferred: the import takes tens of milliseconds and a process with a warm cache never needs it.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    return llvm


@cache
def _target_machine():
    """Code generation for this CPU; position-independent small-model code, which `load_elf` can place."""
    llvm = _binding()
    target = llvm.Target.from_default_triple()
    features = llvm.get_host_cpu_features().flatten()
    return target.create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features, opt=2, reloc="pic", codemodel="small")


def _module(ir_text: str, optimize: bool):
    llvm = _binding()
    machine = _target_machine()
    try:
        module = llvm.parse_assembly(ir_text)
    except RuntimeError as e:
        raise LLVMError(f"invalid LLVM IR: {e}") from None
    if optimize:
        options = llvm.create_pipeline_tuning_options(speed_level=2)
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
    elif "alwaysinline" in ir_text:
        builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=1))
        passes = llvm.create_new_module_pass_manager()
        passes.add_always_inliner_pass()
        passes.run(module, builder)
    return machine, module


def compile_object(ir_text: str, optimize: bool = False) -> bytes:
    """Machine code of an LLVM module (its text) as an ELF object file; `optimize` runs LLVM's passes first."""
    with _lock:
        machine, module = _module(ir_text, optimize)
        return machine.emit_object(module)


def to_assembly(ir_text: str, optimize: bool = False) -> str:
    """The assembly `compile_object` would produce, for people to read."""
    with _lock:
        machine, module = _module(ir_text, optimize)
        return machine.emit_assembly(module)


_engines: list = []


def load_object(code: bytes) -> dict[str, int]:
    """Addresses of the global functions of an object file; they stay valid until the process ends."""
    try:
        return load_elf(code)
    except UnsupportedObject:
        return _load_with_llvm(code)


def _load_with_llvm(code: bytes) -> dict[str, int]:
    """Load through LLVM's own linker: any architecture, any relocation."""
    with _lock:
        llvm = _binding()
        target = llvm.Target.from_default_triple()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_target_machine())
        file = llvm.ObjectFileRef.from_data(code)
        names = _function_names(code)
        engine.add_object_file(file)
        engine.finalize_object()
        _engines.append(engine)
        return {name: engine.get_function_address(name) for name in names}


def _function_names(code: bytes) -> list[str]:
    return global_functions(code)
