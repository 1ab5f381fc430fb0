"""LLVM IR and object files: machine code made, loaded and kept on disk."""
