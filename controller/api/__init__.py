"""The kinds that people write and Kubernetes stores, as pydantic models: one file per kind."""
