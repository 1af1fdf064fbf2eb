"""Power leases: the contract between the controller and the node agents, and how each side keeps it."""
