"""The method ``lns``: a search among all plans of a space, wherever their devices are."""
