"""The commands, one module a group; the command table names each."""
