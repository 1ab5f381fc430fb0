"""Dtypes: scalar types, promotion, casts, queries."""
