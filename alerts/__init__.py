"""Prometheus rules and an Alertmanager configuration, for the served models and for Leadtime."""
