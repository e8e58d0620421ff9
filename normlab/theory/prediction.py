"""The table of a measurement, without running a model."""

from collections.abc import Iterator
from typing import Final

import pandas as pd

from normlab.errors import SpecError
from normlab.spec import ModelSpec
from normlab.theory import rows
from normlab.theory.backward import at_embedding, at_streams
from normlab.theory.batches import Batch, geometry_of
from normlab.theory.elementwise import of_first, over_layers
from normlab.theory.finite_width import at_head, at_norm, gathered
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import Geometry, averages
from normlab.theory.head import Head, head
from normlab.theory.kernels import Array
from normlab.theory.limits import beyond
from normlab.theory.passing import Passing
from normlab.theory.propagation import jacobian_rows
from normlab.theory.reasons import NoTheory
from normlab.theory.rows import Row, Sent, forward_rows, gradient_rows, parameters, sent, table_of
from normlab.theory.scatter import Spread
from normlab.theory.step import Step
from normlab.theory.way_back import WayBack

DETAILS: Final = ("tokens", "averages")


def predict(
    spec: ModelSpec, batch: Batch = 4, tokens: int = 128, *, detail: str = "tokens", jacobian: bool = True
) -> pd.DataFrame:
    """Predict what recording one forward and backward pass at initialisation finds.

    ``value`` is the geometric mean over seeds at the model's width (the mean, for overlap and coherence), and
    ``sd_log`` the predicted standard deviation of its logarithm, where it is known. Derivations, assumptions and errors
    against measured models stand in ``docs/theory.md``.

    Args:
        spec: the model.
        batch: a number of random sequences, or tokens and targets: then which positions are equal counts.
        tokens: positions of a random sequence.
        detail: ``tokens`` carries the covariance of all pairs of positions; ``averages`` three averages over them,
            which is quick and takes positions as exchangeable: for random sequences only, and under a causal mask
            good to a factor of a few for gradients of Post-LN.
        jacobian: whether to predict Jacobians between layers too.

    Returns:
        A table with ``source`` ``theory`` and the cell's columns of ``spec``. A model without a closure has one row
        whose status says ``no theory`` and why; one that leaves the closure's range has it where that happens.

    Raises:
        SpecError: the detail is unknown, averages are asked of a given batch, or the batch has no tokens.
    """
    if detail not in DETAILS:
        raise SpecError(f"detail is {detail!r}: choose 'tokens' or 'averages'")
    if detail == "averages" and isinstance(batch, tuple):
        raise SpecError(
            "detail 'averages' takes positions as exchangeable, which those of a given batch are not: "
            "give a number of random sequences, or choose detail='tokens'"
        )
    geometry = geometry_of(spec, batch, tokens)
    cell = spec.columns() | {"batch": geometry.batch, "tokens": geometry.tokens}
    return table_of(predicted_rows(spec, averages(geometry) if detail == "averages" else geometry, jacobian), cell)


def predicted_rows(spec: ModelSpec, geometry: Geometry, jacobian: bool) -> list[Row]:
    """Return the rows for one choice of pairs of tokens; where there is no theory, one row that says why."""
    try:
        return list(_rows(forward(spec, geometry, together=geometry.rows is None), jacobian))
    except NoTheory as reason:
        return [{"status": f"no theory: {reason}"}]


def _rows(walked: Forward, jacobian: bool) -> Iterator[Row]:
    for part in walked.stacks:
        yield from forward_rows(part)
    try:
        if walked.broken:
            raise NoTheory(walked.broken)
        loss = head(walked)
    except NoTheory as reason:
        yield {"quantity": "loss", "status": f"no theory: {reason}"}
        return
    yield {"quantity": "loss", "value": loss.loss}
    untested = beyond(walked)
    if untested:
        yield {"quantity": "grad_norm", "status": f"no theory: {untested}"}
        return
    # What two streams carry has no Jacobian of one size.
    yield from _gradient_rows(walked, loss, jacobian and not walked.spec.two_streams)


def _gradient_rows(walked: Forward, loss: Head, jacobian: bool) -> Iterator[Row]:
    """Walk back once, through the decoder and then its encoder: rows and the spread that gathers on the way."""
    spec, geometry = walked.spec, walked.geometry
    at: Row = {"stack": walked.stack, "layer": spec.stacks[walked.stack]}
    if not spec.tie_embeddings:
        yield from parameters(at | {"sublayer": "head"}, {"head": geometry.total(loss.role)}, Spread())
    scattering = at_head(loss.gradient, spec.width, geometry)
    memory: list[tuple[Array, Spread]] = []
    yield from _stack_rows(walked, loss, scattering, memory, jacobian)
    if walked.source is not None and memory:
        gradient = sum((over_layers(part, like=loss.gradient) for part, _ in memory), start=0 * loss.gradient)
        scattering = gathered(memory, spec.width, walked.source.geometry)
        yield from _stack_rows(walked.source, Head(loss.loss, gradient, 0 * gradient), scattering, [], False)


def _stack_rows(
    walked: Forward, arrived: Head, scattering: Array, memory: list[tuple[Array, Spread]], jacobian: bool
) -> Iterator[Row]:
    """Walk back through one stack from the gradient at its output; ``memory`` takes what goes to its source's."""
    spec, geometry = walked.spec, walked.geometry
    if spec.has_final_norm:
        at: Row = {"stack": walked.stack, "layer": spec.stacks[walked.stack], "sublayer": "final"}
        roles = walked.final.roles(arrived.gradient)
        if "norm_gain" in roles:
            roles["norm_gain"] = roles["norm_gain"] + arrived.gain * walked.final.gains
        yield from parameters(at, {role: geometry.total(part) for role, part in roles.items()}, Spread())
    state = at_streams(walked, arrived.gradient, arrived.lost)
    if spec.has_final_norm and walked.steps:
        scattering = at_norm(walked.log, state.x, geometry) @ scattering
    way, passing = WayBack(walked, state, jacobian=jacobian), Passing(walked)
    found: list[Sent] = []
    remembered: list[tuple[Array, Step]] = []
    for stream, back in way:
        passing.see(back, stream)
        found.append(sent(back, stream, geometry))
        if back.memory is not None:
            remembered.append((back.memory, back.step))
    behind, inside, start = passing.followed(scattering)
    memory += [(part, inside.at(step.places)) for part, step in remembered]
    yield from gradient_rows(found, behind, inside, geometry)
    yield from jacobian_rows(walked, way.growth)
    gradient = of_first(at_embedding(walked, way.end), like=walked.out)
    yield from _embedding_rows(walked, gradient, arrived, start)


def _embedding_rows(walked: Forward, gradient: Array, arrived: Head, spread: Spread) -> Iterator[Row]:
    """The stream's first value, and the parameters of the embedding, which may be the head's too (E3, H9)."""
    spec, geometry = walked.spec, walked.geometry
    at: Row = {"stack": walked.stack, "layer": 0, "sublayer": "embed"}
    yield from rows.gradient(at, "stream_grad", gradient, geometry, spread)
    roles = {role: geometry.total(part) for role, part in walked.embed.roles(gradient).items()}
    before = walked.embed.back(gradient)
    table = spec.embedding_scale(walked.stack).multiplier ** 2 * geometry.total(geometry.equal_inputs * before)
    if walked.spec.tie_embeddings and walked.stack == list(spec.stacks)[-1]:
        roles["embed+head"] = table + geometry.total(arrived.role + arrived.crossed)
    else:
        roles["embed"] = table
    if spec.position == "learned":
        roles["position"] = geometry.total(geometry.equal_positions * before)
    yield from parameters(at, roles, spread)
