"""What needs no types: options, errors, locks, files, logs, and the state of a thread."""
