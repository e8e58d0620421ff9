from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

import normlab as nl
from normlab.errors import DataError
from normlab.plots import PLOTS, draw, layer_exponents, norm_jacobian, save, singular_values
from normlab.table import concat

SPECS = [nl.ModelSpec(placement=name, depth=depth, width=8, heads=2) for name in ("pre", "post") for depth in (2, 3)]


def _measured(spec: nl.ModelSpec, seed: int) -> pd.DataFrame:
    cell = spec.columns() | {"batch": 1, "tokens": 4, "model_seed": seed, "data_seed": 10000 + seed}
    batch = nl.data.random_batch(batch=1, tokens=4, seed=seed)
    return nl.jacobian.measure(nl.build(spec, seed=seed), batch, k=3, directions=1, cell=cell)


@pytest.fixture(scope="module")
def jacobians() -> pd.DataFrame:
    """Two placements, two depths, two seeds."""
    return concat(_measured(spec, seed) for spec in SPECS for seed in (0, 1))


def test_exponents_are_drawn_where_they_were_measured_and_predicted(jacobians: pd.DataFrame) -> None:
    theory = concat(nl.theory.predict(spec, 1, 4) for spec in SPECS)
    one = (jacobians["placement"] == "pre") & (jacobians["depth"] == 3)
    spec = (theory["placement"] == "pre") & (theory["depth"] == 3)
    ax = layer_exponents(jacobians[one], theory=theory[spec])
    lines = {str(line.get_label()): line for line in ax.get_lines()}
    rows = jacobians[one & (jacobians["quantity"] == "lyapunov") & (jacobians["name"] == "")]
    np.testing.assert_allclose(lines["3"].get_ydata(), rows.groupby("layer")["value"].mean())
    predicted = theory[spec & (theory["quantity"] == "lyapunov")]
    assert lines["theory"].get_xdata().tolist() == [0, 1, 2]
    np.testing.assert_allclose(lines["theory"].get_ydata(), predicted["value"])


def test_one_seed_has_the_band_of_its_estimate(jacobians: pd.DataFrame) -> None:
    one = jacobians[(jacobians["spec"] == SPECS[1].id) & (jacobians["model_seed"] == 0)]
    rows = one[(one["quantity"] == "lyapunov") & (one["name"] == "")].sort_values("layer")
    band = layer_exponents(one).collections[0].get_paths()[0].vertices
    for side in (-2, 2):
        for at, edge in zip(rows["layer"], rows["value"] + side * rows["se"], strict=True):
            assert np.isclose(band, (float(at), edge)).all(axis=1).any()
    assert "Line: one seed; band: two standard errors of its" in PLOTS["layer_exponents"].caption(one)
    assert PLOTS["singular_values"].caption(one).startswith("One seed, so no band.")


def test_every_singular_value_has_a_line(jacobians: pd.DataFrame) -> None:
    one = jacobians[(jacobians["placement"] == "pre") & (jacobians["depth"] == 3)]
    drawn = {tuple(np.round(line.get_ydata(), 9)) for line in singular_values(one).get_lines()}
    for name in ("001", "002", "003"):
        rows = one[(one["quantity"] == "singular_value") & (one["name"] == name)]
        assert tuple(np.round(np.exp(np.log(rows["value"]).groupby(rows["layer"]).mean()), 9)) in drawn


@pytest.mark.parametrize("name", ["layer_exponents", "singular_values"])
def test_a_figure_is_the_same_bytes_again(name: str, jacobians: pd.DataFrame, tmp_path: Path) -> None:
    for suffix in ("svg", "png"):
        paths = [save(draw(jacobians.copy(), name), tmp_path / f"{one}.{suffix}") for one in "ab"]
        assert paths[0].read_bytes() == paths[1].read_bytes()


def test_x_is_q_of_the_stream_where_a_block_starts(jacobians: pd.DataFrame) -> None:
    model, batch = nl.build(SPECS[1], seed=0), nl.data.random_batch(batch=1, tokens=4, seed=0)
    with nl.record(model) as recorder:
        model.loss(*batch).backward()
    cell = SPECS[1].columns() | {"batch": 1, "tokens": 4, "model_seed": 0, "data_seed": 10000}
    recorded = recorder.table().assign(**cell)
    own = jacobians[(jacobians["spec"] == SPECS[1].id) & (jacobians["model_seed"] == 0)]
    (line,) = [one for one in layer_exponents(concat([own, recorded]), x="q").get_lines() if one.get_label() == "3"]
    streams = recorded[(recorded["site"] == "stream") & (recorded["quantity"] == "mean_square")]
    q = streams[streams["sublayer"].isin(["embed", "mlp"])].sort_values("layer")["value"].to_numpy()
    np.testing.assert_allclose(line.get_xdata(), q[:3])
    with pytest.raises(DataError, match="x = q needs the stream's mean square"):
        layer_exponents(own, x="q")


def test_a_table_without_jacobians_says_what_measures_them(small: pd.DataFrame) -> None:
    bare = small[~small["quantity"].isin(["lyapunov", "singular_value"])]
    for name in ("layer_exponents", "singular_values"):
        assert "of blocks (normlab jacobian measures it)" in PLOTS[name].missing(bare)


def test_an_image_shows_every_entry_on_a_symmetric_scale() -> None:
    matrix = torch.eye(6, dtype=torch.float64) - torch.full((6, 6), 1 / 6)
    (image,) = norm_jacobian(matrix, title="LayerNorm").get_images()
    np.testing.assert_array_equal(image.get_array(), matrix.numpy())
    assert (image.norm.vmin, image.norm.vmax) == pytest.approx((-5 / 6, 5 / 6))


def test_an_image_is_the_same_bytes_again_and_needs_finite_entries(tmp_path: Path) -> None:
    for suffix in ("svg", "png"):
        figures = [norm_jacobian(np.eye(5)).get_figure(root=True) for _ in "ab"]
        paths = [save(figure, tmp_path / f"{place}.{suffix}") for place, figure in enumerate(figures)]
        assert paths[0].read_bytes() == paths[1].read_bytes()
    assert norm_jacobian(np.zeros((3, 2))).get_images()
    for wrong in (np.full((2, 2), np.nan), np.zeros((0, 0)), np.zeros((2000, 1))):
        with pytest.raises(DataError, match="cannot be drawn as an image"):
            norm_jacobian(wrong)


def test_an_image_tells_signs_apart_in_greyscale() -> None:
    (image,) = norm_jacobian(np.array([[-1.0, -0.02], [0.02, 1.0]])).get_images()
    red, green, blue, _ = image.cmap(image.norm(np.array([-1.0, -0.02, 0.0, 0.02, 1.0]))).T
    assert (np.diff(0.299 * red + 0.587 * green + 0.114 * blue) > 0.05).all()
