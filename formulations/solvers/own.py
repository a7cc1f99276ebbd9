"""Constraints of a user's own: what a rule may return, and how it becomes part of a model."""

from __future__ import annotations

from typing import Any

from nestopt.core.errors import UsageError

__all__ = ["add_to_model", "add_to_program"]


def add_to_program(program: Any, constraint: Any, name: str) -> None:
    """Add a constraint to a `pulp.LpProblem`; True changes nothing, False makes it infeasible.

    Raises
    ------
    UsageError
        If it is no constraint (an expression without ``<=``, ``>=`` or ``==``, say).
    """
    import pulp

    if constraint is True:
        return
    if constraint is False:
        program += (program.add_variable(f"{name}_never", 0, 1) >= 2, name)
        return
    if not isinstance(constraint, pulp.LpConstraint):
        raise UsageError(
            f"constraint {name}: {constraint!r} is no constraint of PuLP; expected an expression "
            "with <=, >= or =="
        )
    program += (constraint, name)


def add_to_model(model: Any, constraint: Any, name: str) -> None:
    """Add a constraint to a `cp_model.CpModel`; True changes nothing, False makes it infeasible.

    A `cp_model.Constraint` is one that the rule has added itself.

    Raises
    ------
    UsageError
        If it is no constraint (an expression without ``<=``, ``>=`` or ``==``, say).
    """
    from ortools.sat.python import cp_model

    if isinstance(constraint, cp_model.Constraint):
        return
    if isinstance(constraint, bool):
        if not constraint:
            model.add_bool_or([]).with_name(name)
        return
    if not isinstance(constraint, cp_model.BoundedLinearExpression):
        raise UsageError(
            f"constraint {name}: {constraint!r} is no constraint of CP-SAT; expected a linear "
            "expression with <=, >= or =="
        )
    model.add(constraint).with_name(name)
