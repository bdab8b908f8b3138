"""Stores: where histories live. A new one is one file that passes `rerail.testing.store_contract`."""
