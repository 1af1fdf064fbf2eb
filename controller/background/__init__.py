"""Background work: tasks that take longer than a cycle, beside the operator or on Ray. Nothing waits for them."""
