"""The API server: connection, reads, watches, writes, election. Only here kubernetes and aiohttp are imported."""
