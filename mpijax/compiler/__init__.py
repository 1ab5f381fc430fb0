"""From Jaxprs to machine code: loop nests, buffers, LLVM IR, object files."""
