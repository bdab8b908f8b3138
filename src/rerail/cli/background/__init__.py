"""Background workers: their launch, their process, their logs."""
