"""Features of operations: computing time per rank, transfer time per path, who waits for whom, who died first."""
