"""What a plan costs: rate, days, money, energy, and what failures take of it."""
