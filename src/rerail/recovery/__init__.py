"""Heuristics that the ladder uses: classification, disguised errors, coercion. Pure."""
