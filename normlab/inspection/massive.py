"""Massive activations: which token and channel, and where they are born and cancelled."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any, Final, TypeAlias

from normlab.digits import number
from normlab.inspection.finding import Finding, listed, place, ranges
from normlab.inspection.looking import Look
from normlab.inspection.precision import where
from normlab.inspection.tokens import MASSIVE, Place
from normlab.recording import Address

#: A sub-layer bears or cancels an entry where it changes its size by more than this share of the peak of the stretch
#: of sites in which the entry is massive: a later and larger peak hides no earlier birth.
STEP: Final = 0.2
_Step: TypeAlias = tuple[Address, Address]
#: Groups of massive entries that are described; the numbers hold all.
_DESCRIBED: Final = 3
_THRESHOLD: Final = f"an entry more than {MASSIVE:g} times the median over tokens of the token's rms at the same site"


def massive(look: Look, words: Sequence[Sequence[str]]) -> Finding:
    """Return the finding.

    Args:
        look: what was seen.
        words: the tokens of each sequence as text.
    """
    if not look.streams:
        return Finding("massive activations", False, "No stream was observed.", _THRESHOLD, {})
    broken = {at: one.nonfinite for at, one in look.streams.items() if one.nonfinite}
    stacks = {address.stack for address in look.streams}
    left_out = _left_out(broken, stacks) if broken else ""
    at, worst = max(look.streams.items(), key=lambda item: _ratio(item[1].massive_ratio))
    top = {
        "largest_ratio": worst.massive_ratio,
        **where(at),
        "value": worst.largest,
        "sequence": worst.place.sequence,
        "token": worst.place.token,
        "channel": worst.place.channel,
    }
    if not worst.largest <= math.inf:
        return Finding("massive activations", False, f"No token of the stream is finite.{left_out}", _THRESHOLD, {})
    if not worst.largest:
        return Finding("massive activations", False, f"None: the stream is zero.{left_out}", _THRESHOLD, {})
    if not look.tracks:
        says = (
            f"None: the largest entry of the stream is {number(worst.massive_ratio)} times the median token's rms "
            f"(after {place(at, stacks)}).{left_out}"
        )
        return Finding("massive activations", False, says, _THRESHOLD, {**top, "entries": []})
    entries = sorted((_entry(look, *one) for one in look.tracks.items()), key=lambda entry: -abs(entry["peak"]))
    says = (
        " ".join([*(_words(each, words, stacks) for each in _groups(entries)[:_DESCRIBED]), _rest(entries)]).strip()
        + left_out
    )
    return Finding("massive activations", True, says, _THRESHOLD, {**top, "entries": [_plain(e) for e in entries]})


def _left_out(broken: Mapping[Address, int], stacks: set[str]) -> str:
    first = next(iter(broken))
    here = f"{broken[first]} after {place(first, stacks)}, where they begin"
    return f" Tokens with entries that are not finite are left out: {here}."


def _ratio(value: float) -> float:
    return value if value == value else 0.0


def _entry(look: Look, key: tuple[str, Place], track: Mapping[Address, float]) -> dict[str, Any]:
    """Describe one entry by the steps of its value from site to site."""
    size = {at: abs(value) for at, value in track.items() if math.isfinite(value)}
    sites, end = list(size), list(track)[-1]
    peak = max(sites, key=size.__getitem__)
    ratios = {at: size[at] / look.streams[at].median_rms for at in sites if look.streams[at].median_rms > 0}
    most = max(ratios, key=ratios.__getitem__)
    runs = _runs(sites, [at == most or ratios.get(at, 0.0) > MASSIVE for at in sites])
    born, cancelled = _changes(sites, size, runs)
    return {
        "stack": key[0],
        "place": key[1],
        "peak": track[peak],
        "peak_at": peak,
        "born": born,
        "cancelled": cancelled,
        "massive": runs,
        "still": abs(track[end]) > MASSIVE * look.streams[end].median_rms,
        "last": track[end],
        "track": track,
        "ratio": ratios[most],
        "ratio_at": most,
    }


def _runs(sites: Sequence[Address], massive: Sequence[bool]) -> list[tuple[Address, Address]]:
    """Return the first and the last site of each run in which an entry is massive."""
    pairs = groupby(zip(sites, massive, strict=True), key=itemgetter(1))
    runs = [[at for at, _ in run] for is_massive, run in pairs if is_massive]
    return [(run[0], run[-1]) for run in runs]


def _changes(
    sites: Sequence[Address], size: Mapping[Address, float], runs: Sequence[tuple[Address, Address]]
) -> tuple[list[_Step], list[_Step]]:
    """Return the steps that bear an entry and those that cancel it, over all runs in which it is massive.

    A run has what lies between the least values before and after it, on either side of its own peak.
    """
    spans = [(sites.index(first), sites.index(last)) for first, last in runs]
    gaps = [range(last, first + 1) for (_, last), (first, _) in pairwise(spans)]
    turns = [0, *(min(gap, key=lambda place: size[sites[place]]) for gap in gaps), len(sites) - 1]
    born, cancelled = [], []
    for (first, last), (start, end) in zip(spans, pairwise(turns), strict=True):
        peak = max(range(first, last + 1), key=lambda place: size[sites[place]])
        large = STEP * size[sites[peak]]
        born += [step for step in pairwise(sites[start : peak + 1]) if size[step[1]] - size[step[0]] > large]
        cancelled += [step for step in pairwise(sites[peak : end + 1]) if size[step[0]] - size[step[1]] > large]
    return born, cancelled


def _groups(entries: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Put together what is the same channel at the same position of several sequences."""
    groups: dict[tuple[str, int, int], list[dict[str, Any]]] = defaultdict(list)
    for entry in entries:
        groups[entry["stack"], entry["place"].token, entry["place"].channel].append(entry)
    return list(groups.values())


def _words(group: list[dict[str, Any]], words: Sequence[Sequence[str]], stacks: set[str]) -> str:
    """Describe the largest entry of a group, and say in what those of other sequences differ."""
    entry, *others = group
    at = entry["place"]
    origin = f"is born in {_steps(entry, 'born', stacks)}" if entry["born"] else _gradual(entry)
    end = f"is cancelled in {_steps(entry, 'cancelled', stacks)}" if entry["cancelled"] else _fading(entry)
    left = "is still massive" if entry["still"] else "is no longer massive"
    last = f"{left} after the last block ({number(entry['last'])})"
    if not math.isfinite(entry["last"]):
        last = "is not finite after the last block"
    return (
        f"Channel {at.channel} of token {at.token} of {_of_sequences([entry], words)} reaches "
        f"{number(entry['peak'])} after "
        f"{place(entry['peak_at'], stacks)}{_ratio_words(entry, stacks)}. It is massive "
        f"{_where_massive(entry, stacks)}. It {origin}, {end}, and {last}."
        f"{_others(entry, others, words, stacks)}"
    )


def _of_sequences(entries: Sequence[dict[str, Any]], words: Sequence[Sequence[str]]) -> str:
    """Name the sequences of entries, with the text of their token where that is known."""
    found = sorted(one["place"].sequence for one in entries)
    token = entries[0]["place"].token
    texts = f" ({listed(dict.fromkeys(repr(words[one][token]) for one in found))})" if words else ""
    return f"sequence{'s' if len(found) > 1 else ''} {ranges(found)}{texts}"


def _others(
    entry: dict[str, Any], others: Sequence[dict[str, Any]], words: Sequence[Sequence[str]], stacks: set[str]
) -> str:
    """Say where the same channel and token of other sequences is massive, those together that are so in one place."""
    alike: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for one in others:
        alike[_where_massive(one, stacks)].append(one)
    said = ""
    for massive_at, own in alike.items():
        where_it_is = "in the same places" if massive_at == _where_massive(entry, stacks) else massive_at
        least, most = (pick(own, key=lambda one: abs(one["peak"]))["peak"] for pick in (min, max))
        reach = number(most) if number(least) == number(most) else f"{number(least)} to {number(most)}"
        said += f" That of {_of_sequences(own, words)} reaches {reach} and is massive {where_it_is}."
    return said


def _ratio_words(entry: dict[str, Any], stacks: set[str]) -> str:
    """Say where an entry stands out most, and by how much."""
    times = f"{number(entry['ratio'])} times the median token's rms"
    if entry["ratio_at"] == entry["peak_at"]:
        return f", {times}"
    return f"; it stands out most after {place(entry['ratio_at'], stacks)} ({times})"


def _where_massive(entry: dict[str, Any], stacks: set[str]) -> str:
    """Say from where to where an entry is above the threshold, which may be more than once."""
    return listed(
        f"after {place(first, stacks)} alone"
        if first == last
        else f"from {place(first, stacks)} to {place(last, stacks)}"
        for first, last in entry["massive"]
    )


def _gradual(entry: dict[str, Any]) -> str:
    """Say how an entry that no single sub-layer bears came about."""
    first = next(iter(entry["track"].values()))
    if abs(first) > abs(entry["peak"]) / 2:
        return f"is there from the start ({number(first)})"
    return f"grows from {number(first)} in steps of less than {STEP:.0%} of its peak".replace("%", " %")


def _fading(entry: dict[str, Any]) -> str:
    """Say what became of an entry that no single sub-layer cancels."""
    return "fades in small steps" if abs(entry["last"]) < abs(entry["peak"]) / 2 else "is nowhere cancelled"


def _steps(entry: dict[str, Any], which: str, stacks: set[str]) -> str:
    track = entry["track"]
    return listed(
        f"{place(after, stacks)} (from {number(track[before])} to {number(track[after])})"
        for before, after in entry[which]
    )


def _rest(entries: Sequence[dict[str, Any]]) -> str:
    groups = _groups(entries)
    left = sum(len(group) for group in groups[_DESCRIBED:])
    return f"{left} more massive {'entry is' if left == 1 else 'entries are'} in the JSON." if left else ""


def _plain(entry: dict[str, Any]) -> dict[str, Any]:
    at, track = entry["place"], entry["track"]
    steps = {
        which: [{**where(two), "before": track[one], "after": track[two]} for one, two in entry[which]]
        for which in ("born", "cancelled")
    }
    return {
        "stack": entry["stack"],
        "sequence": at.sequence,
        "token": at.token,
        "channel": at.channel,
        "peak": entry["peak"],
        "peak_at": where(entry["peak_at"]),
        "ratio": entry["ratio"],
        "ratio_at": where(entry["ratio_at"]),
        **steps,
        "massive": [{"from": where(first), "to": where(last)} for first, last in entry["massive"]],
        "still_massive": entry["still"],
        "values": [{**where(one), "value": value} for one, value in track.items()],
    }
