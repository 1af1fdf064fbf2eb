"""Reports: charts and single-file HTML pages of simulated runs."""
