"""The site plan: which tensors of a model are which sites, and which parameters have which role.

A plan is data and says nothing about how a model is observed. The zoo's models come with one
(:mod:`normlab.recording.zoo`); you can write one for a model of your own and hand it to
``record(model, sites=plan)``.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal, NamedTuple, TypeAlias

from normlab.vocabulary import SITES

#: The order of a tensor's first axes: ``[batch, token, feature]``, ``[token, batch, feature]``, or
#: ``[batch · token, feature]``.
Layout: TypeAlias = Literal["sequences first", "tokens first", "flat"]


class Address(NamedTuple):
    """Where a row of the table belongs; the fields are the table's columns."""

    stack: str = ""
    layer: int | None = None
    sublayer: str = ""
    site: str = ""
    head: int | None = None
    name: str = ""

    def gradient(self) -> "Address | None":
        """Return the address of the gradient at the same tensor, if that is a site."""
        site = f"{self.site}_grad"
        return self._replace(site=site) if site in SITES else None


@dataclass(frozen=True)
class Port:
    """One tensor that goes into a module or comes out of it.

    Attributes:
        module: the module's path in the model.
        side: whether the tensor is an argument or (part of) the result.
        path: how to get from there to the tensor: for an argument first its position or its keyword,
            then, on both sides, an index, key or attribute for each container that the tensor is in.
        layout: the order of its first axes. A flat tensor has the sequences of the last tensor before it
            that is not flat.
        plus: ports whose tensors, seen earlier in the same pass, are added to it: for what no module shows.
        call: for a module that runs several times in a pass, as a shared block does, which of its calls, from 0; all
            of them, each with rows of its own, unless given.
    """

    module: str
    side: Literal["input", "output"] = "output"
    path: tuple[int | str, ...] = ()
    layout: Layout = "sequences first"
    plus: tuple["Port", ...] = ()
    call: int | None = None


@dataclass(frozen=True)
class Observed:
    """A tensor that is a site, with its features along the last axis.

    Attributes:
        address: where its rows belong.
        port: where the tensor is.
        heads: the tensor is ``[batch, head, token, feature]`` and gives rows for each head.
        gradient: whether the whole gradient can be read there too.
    """

    address: Address
    port: Port
    heads: bool = False
    gradient: bool = True


@dataclass(frozen=True)
class Residual:
    """The pair of tensors that a residual sum adds, and the sum as it was stored.

    Attributes:
        address: the address of the update.
        skip: what the update is added to.
        update: what is added.
        total: the stored sum, where there is one; the pair is compared when this tensor appears, or else
            when the update does.
    """

    address: Address
    skip: Port
    update: Port
    total: Port | None

    @property
    def last(self) -> Port:
        """The tensor that appears last."""
        return self.update if self.total is None else self.total


@dataclass(frozen=True)
class Scores:
    """The attention logits of a module that gets queries and keys per head.

    Attributes:
        address: where their rows belong, one set a head.
        query: ``[batch, head, token, feature]``, after rotation and norm.
        key: ``[batch, head, source, feature]``; fewer heads are shared by consecutive query heads.
        causal: whether a position sees only itself and earlier ones.
        scale: what the inner products are multiplied by; 1/√features unless given.
    """

    address: Address
    query: Port
    key: Port
    causal: bool
    scale: float | None = None


@dataclass(frozen=True)
class Absent:
    """A site that this model does not have, or without a site what stands in for a parameter, and why.

    Attributes:
        address: where its rows belong.
        reason: the status of its rows.
        kind: whether it is the tensor of the site that is not there, or ``pair``: what compares it with another.
    """

    address: Address
    reason: str
    kind: Literal["activation", "pair"] = "activation"


@dataclass(frozen=True)
class Parameter:
    """A parameter, or consecutive places on one axis of a packed one, and its role.

    Attributes:
        name: the parameter's name in the model.
        address: stack, layer, sub-layer and, for a parameter without a role, name.
        role: the value of the table's column ``role``; parameters of one sub-layer that share a role
            are measured together.
        rows: first and last-plus-one place, where a role is a part of the parameter.
        axis: the axis of ``rows``.
    """

    name: str
    address: Address
    role: str
    rows: tuple[int, int] | None = None
    axis: int = 0


@dataclass(frozen=True, eq=False)
class SitePlan:
    """Everything that is observed on a model.

    A plan equals itself alone, so that what follows from one can be looked up by it.

    Attributes:
        observed: the sites that are tensors.
        residuals: the residual sums.
        scores: the attention logits.
        absent: the sites that the model does not have.
        parameters: the parameters by role.
        loss: the scalar that is the loss, where a module computes it.
        once: whether every module runs once in a pass, so that a second call belongs to another pass; otherwise
            calls within one pass have rows of their own.
        in_place: whether tensors may be changed in place after they were seen. Their gradients are then
            awaited in two places, which costs a little.
    """

    observed: tuple[Observed, ...] = ()
    residuals: tuple[Residual, ...] = ()
    scores: tuple[Scores, ...] = ()
    absent: tuple[Absent, ...] = ()
    parameters: tuple[Parameter, ...] = ()
    loss: Port | None = None
    once: bool = False
    in_place: bool = True

    def __post_init__(self) -> None:
        for name in ("observed", "residuals", "scores", "absent", "parameters"):
            # A list might be changed after something was made of it.
            object.__setattr__(self, name, tuple(getattr(self, name)))

    @cached_property
    def modules(self) -> tuple[str, ...]:
        """The path of every module that the plan reads a tensor at, once."""
        return tuple({each.module: None for port in self._ports() for each in (port, *port.plus)})

    def _ports(self) -> Iterator[Port]:
        for observed in self.observed:
            yield observed.port
        for residual in self.residuals:
            yield from (residual.skip, residual.update, residual.last)
        for scores in self.scores:
            yield from (scores.query, scores.key)
        if self.loss is not None:
            yield self.loss

    @cached_property
    def own_sites(self) -> frozenset[str]:
        """The sites that are recorded where somebody gives this plan: the default ones, and all that it names."""
        named = {one.address.site for one in self.observed} | {one.address.site for one in self.scores}
        return self.default_sites | named - {""}

    @cached_property
    def default_sites(self) -> frozenset[str]:
        """The sites that are recorded without being asked for.

        The outputs of a model that is no transformer are: there is nothing else to see.
        """
        generic = any(observed.address.site == "output" for observed in self.observed)
        return DEFAULT_SITES | ({"output", "output_grad"} if generic else frozenset())


DEFAULT_SITES: Final = frozenset(site.name for site in SITES.values() if site.default)
