"""Parts: the Kubernetes side of deciders that need watches, endpoints or a fast loop of their own."""
