"""Baselines: what people and other planners do, each with its best fair partition.

All of them are priced by the same evaluator as the exact methods and held to the same memory.

``megatron``
    The manual recipe: one configuration for all stages, tensor parallelism inside a node, sequence
    parallelism, the distributed optimizer, blocks split evenly; the best of all (data, pipeline,
    tensor, micro-batch) degrees that use as many devices as they can.
``grid``
    Every uniform (data, pipeline, tensor, micro-batch) plan with every ZeRO stage and recompute
    mode, both layouts, and the split of the layers that balances its stages best.
``flat-dp``
    The exact dynamic program on a network without levels, once as fast as a node's and once as slow
    as the slowest level's share; its plan, priced on the real network.
``repair-dp``
    The exact dynamic program with no regard to memory; its plan, repaired stage by stage until it
    fits.
``mcmc``
    Simulated annealing over the structured space, restarted.
``random``
    The best of many random plans of the structured space.
"""
