"""Plans for people: text and pictures."""
