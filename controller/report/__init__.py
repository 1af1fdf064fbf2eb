"""Reports of each cycle: Events, statuses, metrics and logs."""
