"""Grafana dashboards: the `_board` files define them, `generate.py` writes the JSON files."""
