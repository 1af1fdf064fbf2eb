"""The command line: one file per verb, one file per way to print what it returns."""
