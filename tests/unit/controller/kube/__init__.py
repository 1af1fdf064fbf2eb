"""Tests of the connection to the API server."""
