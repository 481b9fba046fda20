"""A drawing of devices and ties: nodes and links with their styles, independent of the chart library."""

from __future__ import annotations

from dataclasses import dataclass, field

PLATFORM = "platform"
"""Id of the platform's node in a drawing."""


@dataclass(frozen=True, slots=True)
class Node:
    """A device, a group of devices, a base station or the platform.

    Attributes:
        group: number of its colour; -1 draws it grey.
        size: diameter in pixels.
        shape: "circle", "rect", "diamond" or "roundRect".
        ring: whether it has a ring, as cluster heads do.
        about: text of its tooltip.
        kind: "device", "group" or "place"; decides what a click does.
    """

    id: str
    name: str
    group: int = 0
    size: float = 18.0
    shape: str = "circle"
    ring: bool = False
    about: str = ""
    kind: str = "device"
    labelled: bool = True


@dataclass(frozen=True, slots=True)
class Link:
    """A tie between two nodes.

    Attributes:
        width: in pixels.
        style: "solid", "dashed" or "dotted".
        tone: "faint" for ties of trust, "group" in the colour of its first node, or "good", "warn", "bad".
        kind: "tie" when a click explains trust, "" otherwise.
    """

    a: str
    b: str
    width: float = 1.0
    style: str = "solid"
    tone: str = "faint"
    about: str = ""
    kind: str = "tie"


@dataclass(frozen=True, slots=True)
class Drawing:
    """Nodes and links, and a summary of what is shown and left out."""

    nodes: list[Node] = field(default_factory=list)
    links: list[Link] = field(default_factory=list)
    summary: str = ""
