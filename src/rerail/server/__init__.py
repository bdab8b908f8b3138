"""The HTTP and MCP servers: parse, call the façade, return views; no rules of their own."""
