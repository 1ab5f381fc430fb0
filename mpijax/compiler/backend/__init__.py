"""The backend: makes machine code from LLVM IR, loads it, and caches it on disk."""
