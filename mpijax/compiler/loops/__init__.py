"""Lowers kernels to LLVM IR: loop order, vectors, tiles, chunks."""
