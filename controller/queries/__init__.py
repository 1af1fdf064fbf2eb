"""Read-only queries of a plan or a cluster for the command line: explain, diff, usage, drain, doctor."""
