"""What is deployed beside the code, checked with the tools that will read it."""
