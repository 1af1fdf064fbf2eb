"""Brain: turns a snapshot into a plan, in the operator's process."""
