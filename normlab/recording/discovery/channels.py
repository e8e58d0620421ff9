"""Streams whose features lie along the second axis, where convolutions take them, and not along the last."""

from typing import Final

from normlab.recording.discovery.branch import data_of
from normlab.recording.discovery.layers import Row
from normlab.recording.discovery.steps import Tracks

CHANNELS_FIRST: Final = "its features lie along the second axis, as convolutions take them, and not along the last"


def has_channels_first(tracks: Tracks, row: Row) -> bool:
    """Whether a convolution takes the stream of a stack as it is, or with what only rescales it."""
    flow = tracks.flow
    for place in row.places:
        for branch in place.branches:
            first = flow.values[branch.products[0]] if branch.products else None
            if first is None or first.op != "convolution":
                continue
            # Walking back stops where an axis of features changes places.
            if flow.same(branch.base) in tracks.back(data_of(flow, first.index)).values:
                return True
    return False
