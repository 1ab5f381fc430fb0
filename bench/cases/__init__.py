"""The cases, one file a topic. A name reads topic/what it does."""

TOPICS = [  # in the order of the table; a topic may use what an earlier one defines
    "calls",
    "communication",
    "elementwise",
    "reductions",
    "same_bits",
    "networks",
    "indexing",
    "scans",
    "sorting",
    "linalg",
    "transforms",
    "random",
    "loops",
    "pallas",
    "examples",
    "memory",
    "compile",
    "size",
]
