"""The fast loop of power: turns budgets into signed power leases for node agents, beside the planning cycle."""
