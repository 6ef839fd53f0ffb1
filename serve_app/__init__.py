"""The served application: what Leadtime scales, and the load that it is measured by."""
