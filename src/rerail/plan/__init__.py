"""Plans as values: steps, references, reading and validation. Pure."""
