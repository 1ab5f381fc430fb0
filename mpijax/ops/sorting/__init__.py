"""Sorts and searches, on one rank and over ranks."""
