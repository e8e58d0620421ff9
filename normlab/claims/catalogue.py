"""The catalogue: every claim, one row each."""

import pandas as pd

from normlab.claims.claim import CLAIMS


def catalog(family: str | None = None) -> pd.DataFrame:
    """Return the registered claims, one row each: statement, source, regimes, rule, expected verdict, plot.

    Args:
        family: only those of a family.
    """
    columns = ("id", "version", "family", "nature", "statement", "source", "regimes", "estimator", "rule",
               "refuted_by", "expected", "right_statement", "ill_posed", "not_tested", "needs", "history", "plot",
               "rule_hash")  # fmt: skip
    rows = [
        {
            **{name: getattr(claim, name) for name in columns if hasattr(claim, name)},
            "regimes": "; ".join(regime.name for regime in claim.regimes),
            "estimator": "; ".join(dict.fromkeys(regime.statistic.estimator for regime in claim.regimes)),
            "rule": "; ".join(dict.fromkeys(regime.rule.text for regime in claim.regimes)),
        }
        for _, claim in CLAIMS.items()
        if family is None or claim.family == family
    ]
    return pd.DataFrame(rows, columns=list(columns))
