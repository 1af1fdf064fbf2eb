"""The loop, and everything that meets the outside."""
