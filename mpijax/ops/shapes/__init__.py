"""Creation, reshapes, broadcasts and joins."""
