"""Grafana dashboards: the `_board` files say what they show, `generate.py` writes the JSON files."""
