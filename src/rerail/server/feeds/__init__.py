"""Feeds for streams and sockets: events, the view of one run, the list of runs."""
