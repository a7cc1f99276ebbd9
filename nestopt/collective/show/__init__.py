"""Schedules for people: text and pictures."""
