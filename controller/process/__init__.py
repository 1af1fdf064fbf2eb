"""The operator's process: all parts put together, started and ended in order."""
