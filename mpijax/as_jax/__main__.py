"""``python -m mpijax.as_jax script.py ...``: a program for which `jax` is mpijax."""

from mpijax.aliasing.program import main

if __name__ == "__main__":
    raise SystemExit(main())
