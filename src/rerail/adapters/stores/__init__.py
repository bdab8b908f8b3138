"""Stores of histories. A new store is one file that passes `rerail.testing.store_contract`."""
