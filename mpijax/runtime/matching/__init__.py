"""Checks that ranks communicate alike, before one of them waits for ever."""
