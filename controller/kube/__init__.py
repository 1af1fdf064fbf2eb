"""The API server: connection, reads, watches, writes, leader election. Only here are kubernetes and aiohttp imported."""
