"""Decision: the number of replicas of least expected cost, within the policy's limits."""
