"""Brain: the planning process that turns a snapshot into a plan, in this process or in a child process on Ray."""
