"""Dynamic resource allocation (resource.k8s.io): exact devices from ResourceSlices for the ResourceClaims of pods."""
