"""Public help for tests: of plans and tools, and of stores that others write."""
