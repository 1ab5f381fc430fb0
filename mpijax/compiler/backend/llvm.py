"""Compiles LLVM IR text to callable machine code.

`compile_object` parses the text and emits an ELF object for this machine's CPU. `load_object` loads an object into
memory and returns the addresses of its functions. The IR of kernels is already vectorized and simplified, so only
helper functions are inlined; code generation (scheduling, register allocation, hoisting of constants) does the rest.
Loops around kernels get LLVM's default passes.
Baseline code skips these passes: it compiles in a third of the time, runs up to 2.6 times as long, and computes the
same bits. LLVM is loaded at the first compilation.
"""

from __future__ import annotations

from mpijax.compiler.backend.disk_cache import DiskCache, cache_key, host_id
from mpijax.compiler.backend.elf import Code, UnsupportedObject, global_functions, load_elf
from mpijax.compiler.backend.library import BASELINE, OPTIMIZING, LLVMError, compiled

__all__ = ["DiskCache", "LLVMError", "cache_key", "compile_object", "host_id", "load_object", "to_assembly"]


def compile_object(ir_text: str, optimize: bool = False, baseline: bool = False) -> bytes:
    """Compile an LLVM module (its text) to an ELF object file.

    optimize: run LLVM's passes first. baseline: compile fast; the code runs slower.
    """
    return compiled(ir_text, optimize, level=BASELINE if baseline else OPTIMIZING)


def to_assembly(ir_text: str, optimize: bool = False) -> str:
    """The assembly of the code that `compile_object` makes, for people to read."""
    return compiled(ir_text, optimize, assembly=True).decode()


def load_object(code: bytes) -> Code:
    """Load an object file into memory."""
    try:
        return load_elf(code)
    except UnsupportedObject:
        return _load_with_llvm(code)


def _load_with_llvm(code: bytes) -> Code:
    """Load through LLVM's own linker: any architecture, any relocation."""
    # Deferred: the import takes tens of milliseconds, and few processes need it.
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    engine = llvm.create_mcjit_compiler(llvm.parse_assembly(""), target.create_target_machine())
    engine.add_object_file(llvm.ObjectFileRef.from_data(code))
    engine.finalize_object()
    return Code({name: engine.get_function_address(name) for name in global_functions(code)}, engine)
