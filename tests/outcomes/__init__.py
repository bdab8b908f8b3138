"""Every way a call can end, as data: run for real with every kind of tool, and shown in docs/concepts.md."""
