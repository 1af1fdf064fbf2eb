"""Inputs of commands: options, arguments, manifests, the connection to a cluster, and the plan made from them."""
