"""Routes of the HTTP API: parse, call the façade, return a view."""
