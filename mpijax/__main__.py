"""``python -m mpijax COMMAND ...``: see `mpijax.cli`."""

from mpijax.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
