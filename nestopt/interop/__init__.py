"""Schedules and plans in the hands of other people's software: runs, exports, foreign clocks."""
