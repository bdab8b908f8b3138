"""Executors: in-process threads, killable processes, Ray nodes."""
