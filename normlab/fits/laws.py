"""Growth laws: which two-parameter law a curve follows, chosen in each seed and put to the vote."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import stats

from normlab.fits.curve import Condition, Data, curves
from normlab.fits.intervals import Floats, Values
from normlab.fits.slopes import need


@dataclass(frozen=True)
class Law:
    """A law with two parameters.

    Attributes:
        name: such as ``linear``.
        formula: y as a function of ℓ with parameters a and b.
        g: the function of ℓ that the law is straight in.
        exponential: whether ln y, and not y, is a + b·g.
    """

    name: str
    formula: str
    g: Callable[[Floats], Floats]
    exponential: bool = False


#: A law whose typical relative error is larger than this describes nothing.
POOR: Final = 0.25
#: The laws that :func:`growth_law` chooses among.
LAWS: Final[Mapping[str, Law]] = {
    law.name: law
    for law in (
        Law("logarithmic", "y = a + b·ln ℓ", np.log),
        Law("sqrt", "y = a + b·√ℓ", np.sqrt),
        Law("linear", "y = a + b·ℓ", np.positive),
        Law("quadratic", "y = a + b·ℓ²", np.square),
        Law("stretched-exponential", "ln y = a + b·√ℓ", np.sqrt, exponential=True),
        Law("exponential", "ln y = a + b·ℓ", np.positive, exponential=True),
    )
}


@dataclass(frozen=True, kw_only=True)
class GrowthLaw:
    """The law that most seeds chose.

    Attributes:
        law: its name.
        formula: y as a function of ℓ, a and b.
        a: mean over seeds of the first parameter.
        b: mean over seeds of the second.
        decided: whether the vote is clear: ``p_value`` is at most ``alpha``.
        p_value: one-sided sign test of the winner's votes against the runner-up's.
        alpha: its level.
        votes: how many seeds chose each law.
        delta_aic: for each law, mean over seeds of its AIC above that seed's best law.
        error: typical relative error of the law: root mean square over seeds and points of (y − f)/y, each
            seed with its own parameters.
        n_seeds: number of seeds.
        x: the abscissae that were used.
        x_name: what x is.
        y_name: what y is.
        left_out: what is missing and why.
    """

    law: str
    formula: str
    a: float
    b: float
    decided: bool
    p_value: float
    alpha: float
    votes: Mapping[str, int]
    delta_aic: Mapping[str, float] = field(repr=False)
    error: float
    n_seeds: int
    x: tuple[float, ...] = field(repr=False)
    x_name: str
    y_name: str
    left_out: tuple[str, ...]

    @property
    def poor(self) -> bool:
        """Whether the law, though the nearest of all, is typically off by more than a quarter."""
        return self.error > POOR

    def predict(self, x: Values) -> Floats:
        """Return the law's y at ``x``, with the parameters averaged over seeds."""
        law = LAWS[self.law]
        line = self.a + self.b * law.g(np.asarray(x, dtype=np.float64))
        return np.asarray(np.exp(line) if law.exponential else line)

    def _repr_html_(self) -> str:
        rows = "".join(
            f"<tr><td>{name}</td><td>{LAWS[name].formula}</td><td>{self.votes[name]}</td>"
            f"<td>{self.delta_aic[name]:.1f}</td></tr>"
            for name in LAWS
        )
        state = "chosen" if self.decided else "leading, not decided"
        return (
            f"<p>{self.y_name} against {self.x_name}: <b>{self.law}</b> {state} "
            f"({self.votes[self.law]} of {self.n_seeds} seeds)</p>"
            f"<table><thead><tr><th>law</th><th>formula</th><th>seeds</th><th>ΔAIC</th></tr></thead>"
            f"<tbody>{rows}</tbody></table>"
        )


def growth_law(
    data: Data, y: str = "", *, x: str = "layer", where: Condition = None, seed: str = "model_seed", alpha: float = 0.05
) -> GrowthLaw:
    """Choose among two-parameter growth laws by AIC in each seed and a vote over seeds.

    Every law is fitted to relative residuals (y − f)/y, because a stream's noise is relative; with two
    parameters each, AIC = n·ln(mean squared residual) + const. The layers of one network are a cumulated
    sum, so their residuals are not independent and differences of AIC within a seed are overconfident:
    each seed has one vote, and a sign test between the winner and the runner-up says whether the vote
    is clear (five seeds must agree).

    Args:
        data: a table, :class:`~normlab.fits.Curves`, or arrays ``(x, y)`` with y ``[seeds, points]``.
        y: the quantity, such as ``"mean_square"``.
        x: the column to plot against; points at x ≤ 0 are left out.
        where: which rows, as a query or as allowed values of columns.
        seed: the column that tells seeds apart.
        alpha: level of the sign test.

    Raises:
        DataError: fewer than four abscissae, no seed, or rows of different things mixed.

    >>> growth_law((range(1, 20), [3.0 + 0.5 * layer for layer in range(1, 20)])).law
    'linear'
    """
    found = curves(data, y, x=x, where=where, seed=seed).positive().balanced()
    need(found, points=4)
    fits = {name: _fit(law, found.x, found.y) for name, law in LAWS.items()}
    aic = np.stack([len(found.x) * np.log(np.maximum(error, 1e-28)) for _, _, error in fits.values()])
    names = list(LAWS)
    votes = Counter(names[choice] for choice in aic.argmin(axis=0))
    ranking = sorted(names, key=lambda name: (-votes[name], names.index(name)))
    winner, runner_up = ranking[:2]
    p_value = _sign_test(votes[winner], votes[runner_up])
    return GrowthLaw(
        law=winner,
        formula=LAWS[winner].formula,
        a=float(fits[winner][0].mean()),
        b=float(fits[winner][1].mean()),
        decided=p_value <= alpha,
        p_value=p_value,
        alpha=alpha,
        votes={name: votes[name] for name in names},
        delta_aic=dict(zip(names, (aic - aic.min(axis=0)).mean(axis=1).tolist(), strict=True)),
        error=float(np.sqrt(fits[winner][2].mean())),
        n_seeds=len(found.seeds),
        x=tuple(float(value) for value in found.x),
        x_name=found.x_name,
        y_name=found.y_name,
        left_out=found.left_out,
    )


def law_errors(law: Law, x: Floats, y: Floats) -> Floats:
    """Return the mean squared relative residual of the law's fit to each seed's curve, ``[seeds]``.

    Args:
        law: one of :data:`LAWS`.
        x: positive abscissae, ``[points]``.
        y: positive ordinates, ``[seeds, points]``.

    >>> float(law_errors(LAWS["linear"], np.arange(1.0, 6.0), 2 + np.arange(1.0, 6.0)[None])[0]) < 1e-25
    True
    """
    return np.maximum(_fit(law, x, y)[2], 1e-28)


def left_out(law: Law, x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """Return the law's a and b fitted to one curve without each of its points in turn, each ``[points]``.

    Args:
        law: one of :data:`LAWS`.
        x: at least three positive abscissae, ``[points]``.
        y: positive ordinates, ``[points]``.

    >>> left_out(LAWS["linear"], np.arange(1.0, 6.0), 2 + np.arange(1.0, 6.0))[0].round(9).tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    fits = [_fit(law, np.delete(x, place), np.delete(y, place)[None]) for place in range(len(x))]
    return np.concatenate([a for a, _, _ in fits]), np.concatenate([b for _, b, _ in fits])


def _fit(law: Law, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
    """Return a and b of each seed, and its mean squared relative residual."""
    g = law.g(x)
    # A relative residual of an exponential is its residual in ln y, to first order.
    target, weights = (np.log(y), np.ones_like(y)) if law.exponential else (y, 1 / y**2)
    total = weights.sum(axis=1)
    mean_g, mean_y = (weights * g).sum(axis=1) / total, (weights * target).sum(axis=1) / total
    centred = g - mean_g[:, None]
    b = (weights * centred * target).sum(axis=1) / (weights * centred**2).sum(axis=1)
    a = mean_y - b * mean_g
    line = a[:, None] + b[:, None] * g
    residual = (y - (np.exp(line) if law.exponential else line)) / y
    return a, b, np.asarray((residual**2).mean(axis=1))


def _sign_test(winner: int, runner_up: int) -> float:
    """P(at least ``winner`` of both votes) if each were equally likely."""
    return float(stats.binom.sf(winner - 1, winner + runner_up, 0.5))
