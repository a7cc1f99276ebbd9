"""The compiled loops of the greedy method."""
