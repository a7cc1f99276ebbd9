"""Synthesis of collective communication schedules on arbitrary networks."""
