"""Independent checker, simulator and verifier of witnesses; no solver's code."""
