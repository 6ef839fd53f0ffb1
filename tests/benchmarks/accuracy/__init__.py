"""What `make bench-forecast` is made of: loads, our forecaster as live, rivals, scores."""
