"""A new plan after a failure, with as much as possible left where it was."""
