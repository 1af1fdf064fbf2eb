"""The mix beside an exact model: random fleets as manifests, the model, and the comparison of both."""
