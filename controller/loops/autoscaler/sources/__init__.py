"""Sources of measured demand: Prometheus, the custom metrics API, and the push endpoint."""
