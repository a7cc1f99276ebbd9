"""The data of collectives: topology, collective, schedule, instance."""
