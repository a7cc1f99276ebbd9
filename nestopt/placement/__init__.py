"""Placement of a training job on a hierarchical, heterogeneous, partly failed cluster."""
