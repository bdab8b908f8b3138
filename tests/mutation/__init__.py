"""Mutation testing of the core: small faults are put in, one at a time, and the tests have to notice."""
