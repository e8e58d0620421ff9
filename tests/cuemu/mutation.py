"""Kernels with one bug each: a change of the source, and the run that must notice it."""

from collections.abc import Callable
from dataclasses import dataclass

from cuemu.harness import Emulator


@dataclass(frozen=True)
class Bug:
    """A change of the source.

    Attributes:
        old: what is replaced; it must be there.
        new: what it is replaced by.
        run: runs kernels and checks the results.
        report: what the emulator says; empty where the numbers are wrong and nothing else is.
        turn: which of the places where ``old`` stands; all of them if negative.
    """

    old: str
    new: str
    run: Callable[[Emulator], None]
    report: str = ""
    turn: int = -1

    def applied(self, source: str) -> str:
        """Return ``source`` with the bug."""
        parts = source.split(self.old)
        assert len(parts) > max(1, self.turn + 1), f"the source has no {self.old!r}"
        if self.turn < 0:
            return self.new.join(parts)
        return self.old.join(parts[: self.turn + 1]) + self.new + self.old.join(parts[self.turn + 1 :])
