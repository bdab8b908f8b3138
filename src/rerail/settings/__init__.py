"""Settings: `rerail.toml`, the environment and the caller, in rising order (contract, section 11)."""
