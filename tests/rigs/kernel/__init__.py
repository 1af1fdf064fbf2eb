"""Real Linux kernel without privileges: User-Mode Linux, fetched once, booted in seconds for tests and benchmarks."""
