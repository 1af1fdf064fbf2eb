"""Health of jobs and nodes: records and evidence in, facts for the remediation of each cycle out."""
