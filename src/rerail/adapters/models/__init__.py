"""Language models that answer the engine's questions."""
