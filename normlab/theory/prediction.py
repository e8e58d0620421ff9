"""The table of a measurement, without running a model."""

from collections.abc import Iterator
from typing import Final, TypeAlias

import pandas as pd
from jaxtyping import Int
from torch import Tensor

from normlab.errors import SpecError
from normlab.spec import ModelSpec
from normlab.theory.backward import at_embedding, at_streams, step_back
from normlab.theory.finite_width import Scatter, Spread, of_head, scatter, through_branch, through_norm
from normlab.theory.forward import Forward, forward
from normlab.theory.geometry import Geometry, averages, of_batch, of_random
from normlab.theory.head import head
from normlab.theory.kernels import Array
from normlab.theory.propagation import jacobian_rows
from normlab.theory.reasons import NoTheory
from normlab.theory.rows import Row, forward_rows, gradient_rows, parameters, row, table_of

Batch: TypeAlias = int | tuple[Int[Tensor, "batch token"], Int[Tensor, "batch token"]]
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
        return list(_rows(forward(spec, geometry), jacobian))
    except NoTheory as reason:
        return [{"status": f"no theory: {reason}"}]


def geometry_of(spec: ModelSpec, batch: Batch, tokens: int) -> Geometry:
    """Return the pairs of tokens of a batch, given or random.

    Raises:
        SpecError: the batch has no tokens.
    """
    if isinstance(batch, tuple):
        return of_batch(*batch)
    if batch < 1 or tokens < 1:
        raise SpecError(f"a batch of {batch} sequences of {tokens} tokens: give whole numbers of at least 1")
    return of_random(batch, tokens, spec.vocab)


def _rows(walked: Forward, jacobian: bool) -> Iterator[Row]:
    logs = scatter(walked)
    yield from forward_rows(walked, logs)
    reason = walked.broken or ("a tied head knows the token it reads" if walked.spec.tie_embeddings else "")
    if reason:
        yield {"quantity": "loss", "status": f"no theory: {reason}"}
        return
    yield from _gradient_rows(walked, logs)
    if jacobian:
        yield from jacobian_rows(walked)


def _gradient_rows(walked: Forward, logs: Scatter) -> Iterator[Row]:
    """Walk back once: rows and the spread that gathers on the way."""
    spec, geometry = walked.spec, walked.geometry
    loss = head(spec, walked.out, geometry)
    at: Row = {"stack": walked.stack, "layer": spec.stacks[walked.stack]}
    yield {"quantity": "loss", "value": loss.loss}
    yield from parameters(at | {"sublayer": "head"}, {"head": geometry.total(loss.role)}, Spread())
    if spec.has_final_norm:
        squares = {role: geometry.total(part) for role, part in walked.final.roles(loss.gradient).items()}
        yield from parameters(at | {"sublayer": "final"}, squares, Spread())
    state, spread = at_streams(walked, loss.gradient), of_head(loss.gradient, spec.width, geometry)
    if spec.has_final_norm and logs.streams:
        spread = spread + through_norm(logs.streams[-1], state.x, geometry)
    sources = (logs.start, *logs.streams[:-1])
    for step, log, source in zip(reversed(walked.steps), reversed(logs.totals), reversed(sources), strict=True):
        stream, after = state.x, spread
        state, back = step_back(step, state)
        if step.wiring.norms_stream and not step.waits:
            spread = spread + through_norm(log, back.total, geometry)
        inside, spread = spread, spread + through_branch(back, spec.width, source, geometry)
        yield from gradient_rows(walked, back, stream, after, inside, spread)
    yield from _embedding_rows(walked, at_embedding(walked, state), spread)


def _embedding_rows(walked: Forward, gradient: Array, spread: Spread) -> Iterator[Row]:
    """The stream's first value, and the parameters of the embedding (E3)."""
    spec, geometry = walked.spec, walked.geometry
    at: Row = {"stack": walked.stack, "layer": 0, "sublayer": "embed"}
    trace = geometry.trace(gradient)
    yield row(at, "stream_grad", "l2", spread.geometric(trace), spread=spread)
    yield row(at, "stream_grad", "grad_coherence", geometry.coherence(gradient))
    roles = {role: geometry.total(part) for role, part in walked.embed.roles(gradient).items()}
    before = gradient * walked.embed.slope
    table = spec.embedding_scale(walked.stack).multiplier ** 2 * geometry.total(geometry.equal_inputs * before)
    roles["embed"] = table
    if spec.position == "learned":
        roles["position"] = geometry.total(geometry.equal_positions * before)
    yield from parameters(at, roles, spread)
