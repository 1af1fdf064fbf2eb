"""Deployment artefacts beside the code: image, dashboards, alerts."""
