"""What is deployed beside the code: the image, dashboards, alerts."""
