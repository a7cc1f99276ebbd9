"""The structured dynamic program: exact, on the real device order, with bounds for any plan."""
