"""Histories of eventful runs, and everything that is told of each: what programs and people read, event by event."""
