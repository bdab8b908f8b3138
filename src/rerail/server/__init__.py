"""Rerail for other programs: thin. It parses, calls the façade, and hands out views; it adds no rule of its own."""
