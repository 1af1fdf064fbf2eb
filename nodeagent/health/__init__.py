"""Health on the node: records of the node's pods and evidence of the host, on their way to the controller."""
