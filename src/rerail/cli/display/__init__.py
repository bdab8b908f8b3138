"""Terminal displays: live runs, reports, graphs, log lines."""
