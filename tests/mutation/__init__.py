"""Mutations of the safety code: one for each rule, which a fast test must notice (`make mutation`)."""
