"""What a tool call may take: admission of declared needs, action ladder, cgroup v2.

Pure, but for `cgroupfs`, which touches the kernel."""
