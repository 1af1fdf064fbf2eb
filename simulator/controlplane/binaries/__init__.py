"""Control plane binaries: found in $KUBEBUILDER_ASSETS, or built from upstream into a cache."""
