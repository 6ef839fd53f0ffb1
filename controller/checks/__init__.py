"""The production check: what is found out of a live application, and the rules that judge it."""
