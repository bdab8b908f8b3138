"""Replay of a recorded run under other settings."""
