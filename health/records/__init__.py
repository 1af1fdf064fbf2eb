"""Frames of records as columns, and the layout of the job that they come from."""
