"""A page of Python: plans, schedules, and an exact model with a constraint of one's own."""

# %% A training job on a cluster with two failed GPUs
import nestopt

cluster = nestopt.load("dgx-h100-64").fail([13, 40])
space = "default-1 microbatch=1,2,4 zero=1"  # which plans count; all of them if left out
result = nestopt.solve("llama3-70b", cluster, space=space, time_limit="5 min")
print(repr(result))  # how it ended, seconds an iteration, bound and gap
print(result.solution.summary())  # one line a stage

frame = result.solution.to_frame()  # the same as a pandas table
print(frame[["stage", "operators", "tensor", "recompute", "devices"]])

axes = result.solution.plot()  # the stages on the cluster; give ax= to draw on axes of your own
axes.figure.savefig("plan.png")
result.solution.to_html("plan.html")  # an interactive page; chart() draws in the terminal

# %% A graph from networkx, an All-Gather on it, and its sends
import networkx as nx  # noqa: E402

graph = nx.random_regular_graph(3, 8, seed=1)
graph.add_edge(0, 4, bandwidth="100 GB/s")  # one link is faster than the others
network = nestopt.Topology.from_networkx(graph, bandwidth="25 GB/s", latency="0.7 us")
gather = nestopt.Collective.of("all-gather", 8, chunk_size="1 MiB")
result = nestopt.solve(gather, network, seed=1)
print(repr(result))
sends = result.solution.to_frame()
print(sends[["start_ps", "arrival_ps", "chunk", "source", "target"]].head())
nestopt.simulate(result)  # an independent event simulation
result.solution.plot().figure.savefig("schedule.png")

# %% A constraint of your own on the exact model
from nestopt.formulations import formulation  # noqa: E402

model = formulation(nestopt.load("chain4-tree2x2"), "milp")
model.add("one stage", lambda m: m.num_stages == 1)
result = model.solve(time_limit=60)
print(repr(result), result.solution)
