"""Stores of histories; CONTRIBUTING names all places."""
