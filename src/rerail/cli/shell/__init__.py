"""The interactive shell (contract T11): a typed line becomes a command of the command line."""
