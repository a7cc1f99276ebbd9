"""The one price of a stage: communication, time, memory; and tables of collectives."""
