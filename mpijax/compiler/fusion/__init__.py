"""From the graph to kernels: which values share a loop nest, and what it computes for an element."""
