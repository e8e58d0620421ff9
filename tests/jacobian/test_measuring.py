"""Jacobian measurements as rows of the one table."""

import numpy as np
import pandas as pd
import pytest
import torch

import normlab as nl
from normlab.errors import UnknownNameError
from normlab.jacobian import JacobianError, JacobianWarning, chain, dense, examine, measure, parts
from normlab.recording import Address, Observed, Port, SitePlan
from normlab.table import QUANTITIES, concat, read_csv, to_csv_bytes

SPEC = nl.ModelSpec(depth=3, width=8, heads=2)


@pytest.fixture(scope="module")
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    return nl.data.random_batch(batch=1, tokens=4, seed=0)


@pytest.fixture(scope="module")
def table(batch) -> pd.DataFrame:
    return measure(nl.build(SPEC, seed=0), batch, k=3, directions=2, probes=64, cell=SPEC.columns())


def rows(table: pd.DataFrame, quantity: str, name: str = "") -> pd.DataFrame:
    return table[(table["quantity"] == quantity) & (table["name"] == name)]


def test_values_are_those_of_the_dense_matrices(table: pd.DataFrame, batch) -> None:
    found = parts(nl.build(SPEC, seed=0), batch)
    blocks = [dense(part, part.point) for part in (found.block(layer) for layer in (1, 2, 3))]
    for place in range(3):
        values = rows(table, "singular_value", f"{place + 1:03d}")["value"].to_numpy()
        np.testing.assert_allclose(values, [float(torch.linalg.svdvals(one)[place]) for one in blocks], rtol=1e-9)
    product = torch.eye(32, dtype=torch.float64)
    exact = []
    for block in reversed(blocks):
        product = product @ block
        exact.append(float(product.square().sum()) / 32)
    found_apjn = rows(table, "apjn")
    assert (np.abs(found_apjn["value"] - exact[::-1]) < 4 * found_apjn["se"]).all()
    local = rows(table, "lyapunov")
    wanted = [0.5 * np.log(float(one.square().sum()) / 32) for one in blocks]
    assert (np.abs(local["value"] - wanted) < 4 * local["se"]).all()
    assert (rows(table, "lyapunov", "mean log")["value"].to_numpy() < local["value"].to_numpy()).all()


def test_rows_are_maps_between_layers(table: pd.DataFrame) -> None:
    assert set(table["quantity"]) <= set(QUANTITIES)
    assert rows(table, "apjn")[["layer", "to_layer"]].to_numpy().tolist() == [[0, 3], [1, 3], [2, 3]]
    assert rows(table, "lyapunov")[["layer", "to_layer"]].to_numpy().tolist() == [[0, 1], [1, 2], [2, 3]]
    assert rows(table, "lyapunov", "qr 002")[["layer", "to_layer"]].to_numpy().tolist() == [[0, 3]]
    assert table["stack"].unique().tolist() == ["decoder"] and table["depth"].unique().tolist() == [3]


def test_the_table_holds_recordings_and_theory_beside_it(table: pd.DataFrame, batch, tmp_path) -> None:
    model = nl.build(SPEC, seed=0)
    with nl.record(model) as recorder:
        model.loss(*batch).backward()
    recorded = recorder.table().assign(**{name: table[name].iloc[0] for name in ("placement", "norm", "depth")})
    whole = concat([recorded, table, nl.theory.predict(SPEC, 1, 4)])
    path = tmp_path / "table.csv.gz"
    path.write_bytes(to_csv_bytes(whole))
    pd.testing.assert_frame_equal(read_csv(path), whole)


def test_the_same_seed_gives_the_same_bits(table: pd.DataFrame, batch) -> None:
    again = measure(nl.build(SPEC, seed=0), batch, k=3, directions=2, probes=64, cell=SPEC.columns())
    pd.testing.assert_frame_equal(again, table)


def test_only_what_is_asked_for_is_measured(batch) -> None:
    found = measure(nl.build(SPEC, seed=0), batch, quantities=["apjn"], probes=2)
    assert set(found["quantity"]) == {"apjn"} and len(found) == 3
    with pytest.raises(UnknownNameError, match="did you mean 'apjn'"):
        measure(nl.build(SPEC, seed=0), batch, quantities=["apjm"])


def test_exponents_are_the_ones_that_theory_predicts() -> None:
    spec = nl.ModelSpec(depth=6, width=128, activation="relu", attention="none", norm="rmsnorm")
    tables = [
        measure(nl.build(spec, seed=s), nl.data.random_batch(batch=1, tokens=8, seed=s), quantities=["lyapunov"])
        for s in range(4)
    ]
    measured = np.mean([rows(one, "lyapunov")["value"].to_numpy() for one in tables], axis=0)
    predicted = rows(nl.theory.predict(spec, 1, 8), "lyapunov")["value"].to_numpy()
    # W_up has gain² 2d/(d + 4d), W_down 2·4d/(d + 4d), so v = χ = ½ · 2/5 · 8/5 = 0.32 and q = 1 + 0.32 ℓ.
    by_hand = 0.5 * np.log(1 + 0.32 / (1 + 0.32 * np.arange(6)))
    np.testing.assert_allclose(predicted, by_hand, rtol=0.03)
    np.testing.assert_allclose(measured, by_hand, rtol=0.05)


def test_an_examined_part_gives_rows_too(batch) -> None:
    found = parts(nl.build(SPEC, seed=0), batch)
    one = examine(found.norm(1, "attn"), k=None, probes=4)
    assert one.spectrum.complete and one.spectrum.rank == 4 * 7
    assert one.norm.low < float(np.sqrt((one.spectrum.values**2).sum())) < one.norm.high
    kept = nl.table.from_rows(list(one.rows()))
    assert kept["name"].iloc[0] == "block 1 attn inner norm" and len(kept) == 33
    assert float(kept["value"].iloc[0]) == pytest.approx(one.norm.value**2 / 32)


def test_what_is_not_finite_has_rows_that_say_so(batch) -> None:
    model = nl.build(SPEC, seed=0)
    with torch.no_grad():
        model.stacks["decoder"].blocks[1].sublayers["attn"].mixer.o.weight[0, 0] = float("nan")
    found = measure(model, batch, k=2, directions=1, probes=2)
    fine = found["layer"].eq(0) & found["to_layer"].eq(1)
    assert (found.loc[fine, "status"] == "ok").all() and found.loc[fine, "value"].notna().all()
    assert (found.loc[~fine, "status"] == "nonfinite").all() and found.loc[~fine, "value"].isna().all()
    assert len(rows(found, "singular_value", "002")) == 3


def test_directions_that_the_stream_lacks_are_said(batch) -> None:
    for wrong in (1000, -1):
        with pytest.raises(JacobianError, match=f"directions is {wrong}: the stream has 32 entries, so give 0 to 32"):
            measure(nl.build(SPEC, seed=0), batch, directions=wrong)


def test_rows_say_with_what_the_model_computes(batch) -> None:
    class Copies(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.empty(x.shape, dtype=torch.float32).copy_(x.tanh() * 0.1)

    model = torch.nn.Sequential(torch.nn.Linear(2, 4), Copies(), Copies())
    sites = [Observed(Address("decoder", 0, "embed", "stream"), Port("0"))]
    sites += [Observed(Address("decoder", layer, "mlp", "stream"), Port(f"{layer}")) for layer in (1, 2)]
    found = parts(model, torch.ones(1, 3, 2), sites=SitePlan(observed=tuple(sites)))
    with pytest.warns(JacobianWarning, match="computes in float32 inside"), chain(found) as blocks:
        assert [block.dtype_name for block in blocks.maps] == ["float32", "float32"]
    with pytest.warns(JacobianWarning, match="computes in float32 inside"):
        assert {row["dtype"] for row in examine(found.block(2)).rows()} == {"float32"}
