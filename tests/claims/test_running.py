import pandas as pd
import pytest

from normlab import claims
from normlab.claims import Claim, Design, Evidence, Number, Regime, Statistic
from normlab.claims.computing import computations
from normlab.claims.evidence import QUANTITY
from normlab.errors import RunError
from normlab.spec import ModelSpec

CALLS: list[int] = []


def draws(seed):
    CALLS.append(seed)
    spec = ModelSpec(depth=2, width=8, heads=2)
    return [Number("one", seed + 0.5), Number("of-a-model", 2.0, spec), Number("lost", float("nan"))]


def mine():
    query = f"quantity == '{QUANTITY}' and name == 'one'"
    sample = lambda rows: claims.Sample(rows["value"].to_numpy(dtype=float), (0,))  # noqa: E731
    regime = Regime(
        "only", query, "numbers", Statistic("the number", "", query, sample), claims.AtMost(100), "supported"
    )
    return Claim(
        id="mine", version=1, family="mine", statement="small", source="me", nature="exact", regimes=(regime,),
        refuted_by="large", right_statement="small", design=Design(evidence=(Evidence(draws),)),
    )  # fmt: skip


@pytest.fixture
def registered(monkeypatch):
    monkeypatch.setattr(claims.CLAIMS, "_entries", dict(claims.CLAIMS.items()))
    CALLS.clear()
    return claims.register_claim(mine())


def test_computed_numbers_are_rows_of_the_table(registered):
    table = Evidence(draws).rows(3)
    assert table["name"].tolist() == ["lost", "of-a-model", "one"] or set(table["name"]) == {
        "lost",
        "of-a-model",
        "one",
    }
    rows = table.set_index("name")
    assert rows.loc["one", "value"] == 3.5 and rows.loc["one", "model_seed"] == 3
    assert (rows.loc["of-a-model", "depth"], rows.loc["of-a-model", "placement"]) == (2, "pre")
    assert rows.loc["lost", "status"] == "nonfinite"
    pd.testing.assert_frame_equal(table, Evidence(draws).rows(3))


def test_a_run_computes_once_and_goes_on_where_it_stopped(registered, tmp_path):
    first = claims.run(["mine"], seeds=range(2), out=tmp_path)
    again = claims.run(["mine"], seeds=range(3), out=tmp_path)
    assert CALLS == [0, 1, 2]
    assert (len(first), len(again)) == (6, 9)
    pd.testing.assert_frame_equal(again, claims.read(tmp_path))


def test_an_interrupted_run_goes_on_where_it_stopped(registered, tmp_path):
    def interrupt(done, of, name):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        claims.run(["mine"], seeds=range(5), out=tmp_path, computed=interrupt)
    assert CALLS == [0, 1]
    whole = claims.run(["mine"], seeds=range(5), out=tmp_path)
    assert CALLS == [0, 1, 2, 3, 4]
    pd.testing.assert_frame_equal(whole, claims.run(["mine"], seeds=range(5)))


def test_a_newer_version_of_a_computation_takes_the_place_of_the_older(tmp_path):
    for version, value in ((1, 1.0), (10, 10.0), (2, 2.0)):
        measured = Evidence(lambda seed, value=value: [Number("n", value)], version)
        list(computations([measured], [0], tmp_path / "evidence"))
    assert claims.read(tmp_path)["value"].tolist() == [10.0]


def test_a_claim_of_a_notebook_is_checked_by_its_name(registered):
    verdict = claims.check("mine", quick=True)
    assert (verdict.verdict, verdict.regimes[0].n_seeds, verdict.rows["count"]) == ("supported", 8, 8)
    assert verdict.regimes[0].domain == "computed from seeded draws"
    assert claims.check("mine", seeds=[99, 100]).verdict == "refuted"


def test_what_is_certain_is_computed_once(tmp_path):
    table = claims.run(["ln-worked-example"], quick=True, out=tmp_path)
    assert set(table["model_seed"]) == {0}
    assert claims.judge("ln-worked-example", table).verdict == "supported"


def test_sweeps_and_computations_share_a_folder(tmp_path):
    ids = ["scaled-init-bounded", "ln-worked-example"]
    measured = claims.run(ids, seeds=[0], quick=True, out=tmp_path, jobs=1, data=claims_data())
    assert set(measured["quantity"].unique()) >= {"mean_square", QUANTITY}
    pd.testing.assert_frame_equal(measured, claims.read(tmp_path))


def claims_data():
    from normlab.data import Random

    return Random(batch=1, tokens=4)


def test_a_folder_without_anything_is_refused(tmp_path):
    with pytest.raises(RunError):
        claims.read(tmp_path)


def test_workers_and_this_process_compute_the_same(tmp_path):
    ids = ["rms2-is-variance-plus-mean2", "ln-shift-invariant", "fp32-accumulation"]
    alone = claims.run(ids, quick=True, out=tmp_path / "alone", jobs=1)
    pd.testing.assert_frame_equal(alone, claims.run(ids, quick=True, out=tmp_path / "two", jobs=2))
