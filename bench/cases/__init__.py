"""The cases, one file a topic. A name reads topic/what it does."""

# The order of the topics in the table.
ORDER = [
    "calls",
    "communication",
    "elementwise",
    "reductions",
    "networks",
    "memory_access",
    "random",
    "compile",
]
