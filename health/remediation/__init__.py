"""What is done about a verdict: by expected GPU-hours, within limits, on incidents that survive a crash."""
