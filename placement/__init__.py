"""Where: which mix of GPU types serves a service, which node and devices a pod gets, and what is worth moving."""
