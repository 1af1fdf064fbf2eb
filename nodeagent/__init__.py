"""The process on each node: telemetry, watt leases. No Ray, no Kubernetes client on its safety path."""
