"""Local control plane for tests and demos: upstream's kube-apiserver and etcd, with simulated nodes."""
