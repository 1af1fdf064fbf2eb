"""Answers to people's questions about a plan or a cluster: explain, diff, usage, drain, doctor."""
