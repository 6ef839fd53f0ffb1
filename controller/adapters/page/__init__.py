"""The status page: what a person on call wants to see in ten seconds. Read-only."""
