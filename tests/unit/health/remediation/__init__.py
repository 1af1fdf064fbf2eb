"""Remediation: rules of the decision, one by one."""
