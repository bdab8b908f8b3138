"""What the engine does to whole runs: read, start, lease, command, retry, watch."""
