"""The fast loop of power: turns budgets into power leases for node agents, beside the planning cycle."""
