"""JSON values: schemas, patterns, names and redaction. Pure."""
