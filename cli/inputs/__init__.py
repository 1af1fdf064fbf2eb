"""Inputs of commands: options, arguments, manifests, the cluster and the plan they lead to."""
