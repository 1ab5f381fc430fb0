"""``python -m mpijax.as_jax script.py ...``: runs a program with mpijax as `jax`."""

from mpijax.aliasing.program import main

if __name__ == "__main__":
    raise SystemExit(main())
