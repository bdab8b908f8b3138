"""Calls on a Ray cluster."""
