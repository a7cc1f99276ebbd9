"""The partitioning literature's models: max-load and Piper."""
