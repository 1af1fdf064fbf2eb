"""The real kube-scheduler's filters as the oracle of what fits, on random clusters."""
