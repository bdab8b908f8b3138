"""Tools: Python functions, shell commands, HTTP requests; their declaration and loading."""
