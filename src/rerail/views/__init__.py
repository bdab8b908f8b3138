"""Read models: state and history in, data or lines out. Pure."""
