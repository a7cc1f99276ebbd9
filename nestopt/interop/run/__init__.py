"""Schedules executed on real processes, with real data, beside the library's own collectives."""
