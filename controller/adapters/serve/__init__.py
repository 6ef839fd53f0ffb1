"""Ray Serve: what it says over REST, and how replicas are set there."""
