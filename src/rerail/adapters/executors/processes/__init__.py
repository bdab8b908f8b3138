"""Calls in worker processes."""
