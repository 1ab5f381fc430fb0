"""Loops and branches as primitives. The Jaxprs of their bodies are parameters."""
