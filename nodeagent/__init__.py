"""Node agent: the process on each node for telemetry and power leases. No Ray and no Kubernetes client on its safety
path.
"""
