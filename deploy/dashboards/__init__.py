"""Grafana dashboards: a YAML file defines each, `generate.py` writes it as JSON for Grafana."""
