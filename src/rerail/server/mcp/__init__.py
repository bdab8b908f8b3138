"""Rerail as an MCP server."""
