"""What both problems stand on: errors, units, files, results, options, methods by name."""
