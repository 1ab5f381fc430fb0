"""Turns the graph into kernels: decides which values share a loop nest, and what it computes for an element."""
