"""Models: who answers questions in words."""
