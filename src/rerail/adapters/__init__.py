"""Adapters: the ports of the engine, tied to the world; each knows nothing of the others."""
