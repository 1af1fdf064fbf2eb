"""Reports of each cycle: Events, statuses, metrics, logs."""
