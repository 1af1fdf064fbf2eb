"""Mix of GPU types: how many instances of which type serve each model service at least cost."""
