"""Growth laws: which two-parameter law a curve follows, chosen in each seed and put to the vote."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from scipy import special, stats

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
#: The ends of a line differ by a factor of at most exp of this: beyond, a + b·g would have no digits left.
_WIDEST: Final = 25.0
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
        error: typical relative error of the law: exp(r) − 1 with r the root mean square over seeds and points of
            ln(y/f), each seed with its own parameters; 0.3 says that y is typically off by a factor of 1.3.
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

    Every law f > 0 is fitted by least squares of ln y − ln f, because a stream's noise is relative: this is the
    likelihood of log-normal noise, the same for all. With two parameters each, AIC = n·ln(mean squared residual)
    + const. The layers of one network are a cumulated sum, so their residuals are not independent and differences
    of AIC within a seed are overconfident:
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
        error=float(np.expm1(np.sqrt(fits[winner][2].mean()))),
        n_seeds=len(found.seeds),
        x=tuple(float(value) for value in found.x),
        x_name=found.x_name,
        y_name=found.y_name,
        left_out=found.left_out,
    )


def law_errors(law: Law, x: Floats, y: Floats) -> Floats:
    """Return the mean squared relative residual (y − f)/y of each seed's least squares line in g, ``[seeds]``.

    This is the measure of claims whose rules are kept; :func:`growth_law` takes residuals of ln y, which is the same
    to first order.

    Args:
        law: one of :data:`LAWS` that is straight in y.
        x: positive abscissae, ``[points]``.
        y: positive ordinates, ``[seeds, points]``.

    >>> float(law_errors(LAWS["linear"], np.arange(1.0, 6.0), 2 + np.arange(1.0, 6.0)[None])[0]) < 1e-25
    True
    """
    weights, g = 1 / y**2, law.g(x)
    total = weights.sum(axis=1)
    mean_g, mean_y = (weights * g).sum(axis=1) / total, (weights * y).sum(axis=1) / total
    centred = g - mean_g[:, None]
    b = (weights * centred * y).sum(axis=1) / (weights * centred**2).sum(axis=1)
    residual = (y - mean_y[:, None] - b[:, None] * centred) / y
    return np.asarray(np.maximum((residual**2).mean(axis=1), 1e-28))


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
    """Return a and b of each seed, and its mean squared residual of ln y."""
    g, logs = law.g(x), np.log(y)
    a, b = _line(g, logs) if law.exponential else _positive_line(g, logs)
    line = a[:, None] + b[:, None] * g
    residual = logs - (line if law.exponential else np.log(line))
    return a, b, np.asarray((residual**2).mean(axis=1))


def _line(g: Floats, target: Floats) -> tuple[Floats, Floats]:
    """Return the least squares a and b of each seed's target on g."""
    centred = g - g.mean()
    b = (target * centred).sum(axis=1) / (centred**2).sum()
    return target.mean(axis=1) - b * g.mean(), b


def _positive_line(g: Floats, logs: Floats) -> tuple[Floats, Floats]:
    """Return a and b of the line, positive at every g, whose logarithm is nearest to each seed's logs.

    But for a factor, whose logarithm is a mean, such a line has one parameter: u, the logarithm of the ratio of its
    ends. It is looked for on a grid that is made finer around the best, since there may be several minima.
    """
    share = (g - g.min()) / np.ptp(g)
    best, step, half = np.zeros(len(logs)), 0.5, round(_WIDEST / 0.5)
    while step > 1e-13:
        u = best[:, None] + step * np.arange(-half, half + 1)
        off = (logs[:, None] - _log_shape(u, share)).var(axis=2)
        best = u[np.arange(len(u)), off.argmin(axis=1)]
        half, step = 3, step / 3
    factor = np.exp((logs - _log_shape(best[:, None], share)[:, 0]).mean(axis=1))
    low, high = factor * special.expit(-best), factor * special.expit(best)
    b = (high - low) / np.ptp(g)
    return low - b * g.min(), b


def _log_shape(u: Floats, share: Floats) -> Floats:
    """Return the logarithm of lines of which the ends have the ratio exp(u) and the sum 1, ``[..., points]``."""
    low, high = special.expit(-u)[..., None], special.expit(u)[..., None]
    return np.asarray(np.log(low * (1 - share) + high * share))


def _sign_test(winner: int, runner_up: int) -> float:
    """P(at least ``winner`` of both votes) if each were equally likely."""
    return float(stats.binom.sf(winner - 1, winner + runner_up, 0.5))
