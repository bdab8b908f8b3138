"""The engine without the world: plans, events, the fold, and what to do next. No I/O, no clock, no chance."""
