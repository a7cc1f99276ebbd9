"""Lower bounds for all plans, and why nothing fits."""
