"""Compiled programs: loaded, called, kept on disk, explained."""
