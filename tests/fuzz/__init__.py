"""Hostile input: texts from anywhere, made worse by a machine that looks for the way to a crash."""
