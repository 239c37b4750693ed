"""A run seen from outside: metrics for Prometheus, and pages for a browser."""
