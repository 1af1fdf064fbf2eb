"""API kinds of Tonnage, and the parts of Node and Pod that it reads, as pydantic models: one file per kind."""
