"""Grafana dashboards, built from Python; what is shipped is the JSON in `json/`."""
