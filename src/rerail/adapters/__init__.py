"""Adapters of the engine's ports; they do not import each other."""
