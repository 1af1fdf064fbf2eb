"""Control: one step from readings to grants, with a policy that wants and the safety layer that grants or trims."""
