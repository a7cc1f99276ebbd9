"""The data of placement: cluster, workload, plan, space of plans, instance."""
