"""Networks: hosts at switches, or regions with links between them."""

from __future__ import annotations

import html
import json
import os
from typing import TYPE_CHECKING, Any

from .._native import Fabric as NativeFabric
from .errors import InputError
from .files import write_file
from .optional import load

if TYPE_CHECKING:
    import networkx

__all__ = ["Fabric", "fat_tree", "leaf_spine"]

MAX_ROWS = 20
"""The number of links between regions that a notebook shows."""


class Fabric:
    """A network: hosts at switches with cables between them, or regions with a link from each to each other.

    Host ``i`` is port ``i`` of a trace. Create a fabric by :func:`leaf_spine`, :func:`fat_tree`, :meth:`template`, :meth:`read`,
    :meth:`from_cables` or :meth:`from_networkx`. Fabrics do not change, and are equal if their nodes, cables and events are.

    >>> import weir
    >>> weir.leaf_spine(leaves=10, hosts=15, spines=4, rate="1Gbit", oversubscription=3)
    <weir.Fabric leaf-spine: 150 hosts, 14 switches, 190 cables>
    """

    __slots__ = ("_native",)
    __hash__ = None  # type: ignore[assignment]
    _native: NativeFabric

    def __init__(self) -> None:
        raise TypeError("expected Fabric.read(file), weir.leaf_spine(...) or another function that creates fabrics")

    @classmethod
    def _wrap(cls, native: NativeFabric) -> Fabric:
        fabric = cls.__new__(cls)
        fabric._native = native
        return fabric

    @classmethod
    def _parse(cls, text: str, name: str) -> Fabric:
        return cls._wrap(NativeFabric.parse(text, name))

    def __reduce__(self) -> tuple[object, tuple[str, str]]:
        return Fabric._parse, (self._native.text, self.name)

    @classmethod
    def read(cls, file: str | os.PathLike[str]) -> Fabric:
        """Reads a file in the fabric format (``docs/fabric-format.md``) or the wide-area format (``docs/wide-area-format.md``).

        :raises InputError: if the file is invalid or cannot be read.
        """
        return cls._wrap(NativeFabric.read(file))

    @classmethod
    def template(cls, kind: str, **parameters: int | float | str) -> Fabric:
        """Creates the fabric of a template of the fabric format, with the parameters of ``weir fabric generate KIND``.

        ========================================================  ==========================================================
        ``kind``                                                  Parameters
        ========================================================  ==========================================================
        ``big-switch``                                            ``hosts``, ``rate``
        ``leaf-spine``                                            ``spines``, ``leaves``, ``hosts`` (of each leaf), ``rate``,
                                                                  ``oversubscription``
        ``fat-tree``                                              ``ports``, ``rate``, ``oversubscription`` (default 1)
        ``saba-tiers`` (Saba, section 8.1)                        ``oversubscription`` (default 1)
        ``netshare-fig1``, ``-fig3``, ``-fig6``, ``-fig7``        none
        ``netshare-fig16``                                        ``services``
        ========================================================  ==========================================================

        >>> Fabric.template("big-switch", hosts=8, rate="10Gbit")
        <weir.Fabric big-switch: 8 hosts, 1 switch, 8 cables>

        :raises InputError: if a value is out of range.
        """
        return cls._wrap(NativeFabric.template(kind, **parameters))

    @classmethod
    def from_cables(
        cls,
        hosts: list[str],
        switches: list[str] | list[tuple[str, int]],
        cables: list[tuple[str, str, str]],
    ) -> Fabric:
        """Creates a fabric from its nodes and cables.

        :param hosts: names of the hosts, in the order of ports.
        :param switches: names of the switches, or pairs of name and tier. Tiers are 1 next to the hosts, and only for display.
        :param cables: both ends, and the rate in each direction with a unit, such as ``("h0", "leaf0", "10Gbit")``.
        :raises InputError: if a name, a rate or a cable is invalid, or no path connects two hosts.
        """
        tiers = [(switch, 1) if isinstance(switch, str) else switch for switch in switches]
        return cls._wrap(NativeFabric.from_cables(list(hosts), tiers, list(cables)))

    @classmethod
    def from_networkx(cls, graph: networkx.Graph, *, rate: str | None = None) -> Fabric:
        """Creates a fabric from a graph whose hosts have the attribute ``kind="host"``; all other nodes are switches.

        An edge is a cable, with its rate in the attribute ``rate``, such as ``"10Gbit"``. Switches can have a ``tier``. Names are the
        nodes as text. Hosts are ports in the order of the nodes. The paths of flows depend on the order of cables: that of the edges, or
        of their attribute ``cable``.

        :param rate: the rate of edges without that attribute.
        :raises InputError: if an edge has no rate, a tier is not from 0 to 255, or the network is invalid.
        :raises TypeError: if the graph is no graph of networkx, or a tier no whole number.
        """
        if not hasattr(graph, "is_multigraph"):
            raise TypeError(f"`graph`: expected a networkx.Graph, not {type(graph).__name__}")
        if graph.is_directed() or graph.is_multigraph():
            raise InputError("graph: expected a networkx.Graph, whose edges are cables", expected="a networkx.Graph")
        nodes = list(graph.nodes(data=True))
        hosts = [str(node) for node, attributes in nodes if attributes.get("kind") == "host"]
        switches = [(str(node), attributes.get("tier", 1)) for node, attributes in nodes if attributes.get("kind") != "host"]
        cables = []
        edges = sorted(graph.edges(data=True), key=lambda edge: edge[2].get("cable", 0))
        for start, end, attributes in edges:
            edge_rate = attributes.get("rate", rate)
            if edge_rate is None:
                raise InputError(
                    f"edge from `{start}` to `{end}`: expected the attribute `rate`, such as \"10Gbit\"; help: "
                    'from_networkx(graph, rate="10Gbit") sets it for all edges',
                    field="rate",
                    expected='the attribute `rate`, such as "10Gbit"',
                )
            start, end = attributes.get("ends", (start, end))
            cables.append((str(start), str(end), edge_rate))
        return cls._wrap(NativeFabric.from_cables(hosts, switches, cables))

    def to_networkx(self) -> networkx.Graph:
        """The fabric as a :class:`networkx.Graph`; regions as a :class:`networkx.DiGraph`.

        Nodes have ``kind`` (``"host"``, ``"switch"`` or ``"region"``); hosts have ``port``, and switches ``tier``. Edges have ``rate``
        (text that :meth:`from_networkx` reads), ``capacity``, the rate in each direction in bit/s, and ``cable``, its number, with ``ends``
        in its order. Edges of regions have ``samples``, measured bandwidths in bit/s from low to high, and ``capacity``, their mean.
        """
        graphs = load("networkx", "Fabric.to_networkx", "networkx")
        native = self._native
        if native.regions:
            regions = graphs.DiGraph(name=self.name)
            regions.add_nodes_from(native.regions, kind="region")
            for start, end, samples in native.region_links:
                regions.add_edge(start, end, samples=samples, capacity=sum(samples) / len(samples))
            return regions
        graph = graphs.Graph(name=self.name)
        for port, host in enumerate(native.hosts):
            graph.add_node(host, kind="host", port=port)
        for switch, tier in native.switches:
            graph.add_node(switch, kind="switch", tier=tier)
        for number, ((start, end, capacity), rate) in enumerate(zip(native.cables, native.cable_rates, strict=True)):
            graph.add_edge(start, end, rate=rate, capacity=capacity, cable=number, ends=(start, end))
        return graph

    def write(self, file: str | os.PathLike[str], *, cables: bool = False) -> None:
        """Writes the fabric so that :meth:`read` and the command line read an equal one. The file appears once it is complete.

        :param cables: write a list of all cables in place of a template and its parameters.
        :raises InputError: if ``cables`` is set for regions, or for cables that fail and are repaired.
        :raises OSError: if the file cannot be written.
        """
        text = self._native.cables_text() if cables else self._native.text
        write_file(file, text.encode())

    @property
    def name(self) -> str:
        """The name in results: the file, the kind of the template, or ``links``."""
        return self._native.name

    @property
    def hosts(self) -> list[str]:
        """The names of the hosts, in the order of ports; empty for regions."""
        return self._native.hosts

    @property
    def switches(self) -> list[tuple[str, int]]:
        """The names of the switches and their tiers, 1 next to the hosts; empty for regions."""
        return self._native.switches

    @property
    def cables(self) -> list[tuple[str, str, float]]:
        """The cables: both ends, and the rate in each direction in bit/s; empty for regions."""
        return self._native.cables

    @property
    def regions(self) -> list[str]:
        """The names of the regions; empty for hosts and switches."""
        return self._native.regions

    @property
    def region_links(self) -> list[tuple[str, str, list[float]]]:
        """The links between regions: sender, receiver, and measured bandwidths in bit/s from low to high."""
        return self._native.region_links

    def describe(self) -> dict[str, Any]:
        """The record of ``weir fabric describe --format json``: tiers, oversubscription, bisection bandwidth, and paths between hosts.

        Rates are in bit/s. The page about output defines all fields. Fabrics of tens of thousands of hosts take seconds.

        :raises InputError: for regions.
        """
        description: dict[str, Any] = json.loads(self._native.describe())
        return description

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Fabric):
            return NotImplemented
        return self._native == other._native

    def _size(self) -> str:
        native = self._native
        if native.regions:
            return f"{_count(len(native.regions), 'region')}, {_count(len(native.region_links), 'link')}"
        parts = [(len(native.hosts), "host"), (len(native.switches), "switch"), (len(native.cables), "cable")]
        if native.event_count:
            parts.append((native.event_count, "event"))
        return ", ".join(_count(*part) for part in parts)

    def __repr__(self) -> str:
        return f"<weir.Fabric {self.name}: {self._size()}>"

    def _repr_html_(self) -> str:
        head = f"<b>{html.escape(self.name)}</b>: {self._size()}"
        native = self._native
        if native.regions:
            links = native.region_links
            rows = [[start, end, _rate(samples[0]), _rate(samples[-1])] for start, end, samples in links[:MAX_ROWS]]
            more = len(links) - len(rows)
            note = f"<p>and {_count(more, 'more link')}</p>" if more else ""
            return head + _table(["from", "to", "min", "max"], rows) + note
        tiers = {tier: (switches, oversubscription) for tier, switches, oversubscription in native.tiers()}
        cables = []
        for lower, upper, count, low, high, total in native.cable_groups():
            rates = _rate(low) if low == high else f"{_rate(low)} to {_rate(high)}"
            cables.append([_tier(lower), _tier(upper), f"{count:,}", rates, _rate(total)])
        switches = [
            [_tier(tier), f"{count:,}", "-" if ratio is None else f"{ratio:.3g}"] for tier, (count, ratio) in tiers.items()
        ]
        return (
            head
            + _table(["switches", "count", "oversubscription"], switches)
            + _table(["cables from", "to", "count", "rate", "in all"], cables)
        )


def leaf_spine(*, leaves: int, hosts: int, spines: int, rate: str, oversubscription: float) -> Fabric:
    """Leaf switches, each with a cable to every spine switch.

    :param leaves: number of leaf switches.
    :param hosts: number of hosts of each leaf switch.
    :param spines: number of spine switches.
    :param rate: rate of each host's cable in each direction with a unit, such as ``"1Gbit"`` or ``"125MB/s"``.
    :param oversubscription: the capacity of a leaf's cables to hosts, divided by that of its cables to spines; above 0.
    :raises InputError: if a value is out of range, or the rate has no unit.
    """
    return Fabric.template(
        "leaf-spine", leaves=leaves, hosts=hosts, spines=spines, rate=rate, oversubscription=oversubscription
    )


def fat_tree(*, k: int, rate: str, oversubscription: float = 1.0) -> Fabric:
    """Three tiers of switches with ``k`` ports each, and ``k**3 / 4`` hosts.

    :param k: number of ports of each switch, an even number; ``--ports`` of the command line.
    :param rate: rate of each host's cable in each direction with a unit, such as ``"1Gbit"`` or ``"125MB/s"``.
    :param oversubscription: the capacity of an edge switch's cables to hosts, divided by that of its uplinks; above 0.
    :raises InputError: if a value is out of range, or the rate has no unit.
    """
    return Fabric.template("fat-tree", ports=k, rate=rate, oversubscription=oversubscription)


def _count(count: int, noun: str) -> str:
    plural = noun + ("es" if noun.endswith("ch") else "s")
    return f"{count:,} {noun if count == 1 else plural}"


def _tier(tier: int) -> str:
    return "hosts" if tier == 0 else f"tier {tier}"


def _rate(bit_per_s: float) -> str:
    for unit, factor in (("Tbit/s", 1e12), ("Gbit/s", 1e9), ("Mbit/s", 1e6), ("kbit/s", 1e3)):
        if bit_per_s >= factor:
            return f"{bit_per_s / factor:.4g} {unit}"
    return f"{bit_per_s:.4g} bit/s"


def _table(head: list[str], rows: list[list[Any]]) -> str:
    line = "".join(f"<th>{html.escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{html.escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{line}</tr></thead><tbody>{body}</tbody></table>"
