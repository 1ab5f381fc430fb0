"""Jaxprs and their text."""
