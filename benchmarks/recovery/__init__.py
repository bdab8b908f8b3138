"""How often the world really ends in the right state after faults, and who says "success" when it does not."""
