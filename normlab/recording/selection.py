"""What is recorded: the sites and quantities that were asked for, checked, and what that takes."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from normlab.errors import unknown_name
from normlab.recording.plan import SitePlan
from normlab.recording.tokens import Wanted
from normlab.vocabulary import COMPARED, INSPECTED, QUANTITIES, SITES

#: Quantities that a recorder can give: the others need Jacobian products, or the tensors themselves.
_NOT_RECORDED: Final = ("apjn", "singular_value", "lyapunov", *(quantity.name for quantity in (*INSPECTED, *COMPARED)))
RECORDED: Final = tuple(name for name in QUANTITIES if name not in _NOT_RECORDED)


@dataclass(frozen=True)
class Selection:
    """The sites and quantities to record.

    Attributes:
        sites: names of sites.
        quantities: names of quantities.
    """

    sites: frozenset[str]
    quantities: frozenset[str]

    @property
    def wanted(self) -> Wanted:
        """Which passes over a tensor the quantities need."""
        has = self.quantities
        return Wanted(
            largest="max_abs" in has,
            fourth="kurtosis" in has,
            total=bool(has & {"token_overlap", "grad_coherence"}),
            direction="token_cosine" in has,
            product=bool(has & {"alignment", "covariance"}),
            lost="lost_share" in has,
        )

    @property
    def pairs(self) -> bool:
        """Whether update and skip are compared."""
        return "update" in self.sites and bool(self.quantities & quantities_of("update"))

    def also_reads(self, site: str) -> bool:
        """Whether a quantity of another site needs ``site``."""
        return site == "input" and "branch" in self.sites and "branch_gain" in self.quantities


def select(plan: SitePlan, sites: Iterable[str] | None, quantities: Iterable[str] | None) -> Selection:
    """Check names of sites and quantities; the defaults of ``plan`` where none are given.

    Raises:
        UnknownNameError: a name is not one of a site, or of a quantity that can be recorded.
    """
    return Selection(
        plan.default_sites if sites is None else _known("site", sites, SITES),
        frozenset(RECORDED) if quantities is None else _known("quantity", quantities, RECORDED),
    )


def quantities_of(*of: str) -> frozenset[str]:
    """Return the names of the quantities of tensors of these kinds."""
    return frozenset(name for name, quantity in QUANTITIES.items() if quantity.of in of)


def _known(what: str, names: Iterable[str], allowed: Iterable[str]) -> frozenset[str]:
    chosen = (names,) if isinstance(names, str) else tuple(names)
    for name in chosen:
        if name not in allowed:
            raise unknown_name(what, str(name), allowed)
    return frozenset(chosen)
