"""What a check says of a result: what it verified, and what the file merely claims."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import overload

from nestopt.core.errors import CheckError

__all__ = ["NotProvedError", "Verdict"]


@dataclass(slots=True)
class Verdict(Sequence[str]):
    """What a check found; as a sequence, the statements that it verified.

    Attributes
    ----------
    verified : list of str
        Statements that the check computed again, or that a witness in the file proves.
    claimed : list of str
        Statements that the file makes and that nothing in it proves: an optimum by exhausted
        search, a bound of a relaxation, infeasibility. They do not count as verified.
    unproved : list of str
        Statements that the file would have to prove and does not; any one refuses the file.
    """

    verified: list[str] = field(default_factory=list)
    claimed: list[str] = field(default_factory=list)
    unproved: list[str] = field(default_factory=list)

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> list[str]: ...
    def __getitem__(self, index: int | slice) -> str | list[str]:
        return self.verified[index]

    def __len__(self) -> int:
        return len(self.verified)

    def add(self, other: Verdict | Sequence[str]) -> None:
        """Take over what another check found; a plain sequence is of verified statements."""
        if isinstance(other, Verdict):
            self.claimed += other.claimed
            self.unproved += other.unproved
        self.verified += [line for line in other if line not in self.verified]

    def settle(self) -> Verdict:
        """This verdict, if nothing is left unproved.

        Raises
        ------
        NotProvedError
            Otherwise.
        """
        if self.unproved:
            raise NotProvedError(self)
        return self


class NotProvedError(CheckError):
    """A result claims more than its file proves.

    Parameters
    ----------
    verdict : Verdict
        With at least one unproved statement.
    """

    def __init__(self, verdict: Verdict) -> None:
        self.verdict = verdict
        super().__init__("; ".join(f"not proved: {line}" for line in verdict.unproved))
