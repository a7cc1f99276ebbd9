"""Matching of links and chunks on a time-expanded network that is never built."""
