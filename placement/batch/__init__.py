"""Planning a batch: all pods that wait, at once, onto nodes that together cost least an hour."""
