"""Rerail inside other frameworks."""
