"""From a kernel to LLVM IR: the order of loops, vectors, tiles, chunks."""
