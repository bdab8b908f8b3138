"""What can be called: Python functions, shell commands, HTTP requests; and how they are declared and loaded."""
