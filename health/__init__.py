"""What to trust: the faulty rank, NIC or link behind a hang or a slow-down, from records of collective operations."""
