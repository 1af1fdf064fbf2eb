"""The fast loop of power: budgets into signed power leases for node agents, beside the cycle."""
