"""Prometheus: what it says of each deployment now, and what it said over the last days."""
