"""A pretend datacenter around a real Kubernetes API server: upstream's control plane, simulated nodes."""
