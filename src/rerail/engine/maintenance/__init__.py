"""Runs as data: export, import, prune and health checks."""
