"""The program as a graph of values: calls inlined, equal work merged, operations made simpler."""
