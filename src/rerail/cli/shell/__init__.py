"""The interactive shell (SPEC T11): what is typed becomes a command; all of its rules are the command line's."""
