"""Command line: one file per verb, and one file per kind of output."""
