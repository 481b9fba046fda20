"""Parameters of the topologies: `parameters.topology` of a task."""

from __future__ import annotations

from typing import Literal

from coterie.parameters.declaration import ParameterGroup, parameter, parameter_group

Related = Literal["ownership", "parental", "co-location", "co-work", "social", "social-public", "friendship"]
LinkClass = Literal["wifi", "lora", "bluetooth", "cellular", "ethernet"]


@parameter_group("topology", "clusters")
class ClusterParameters(ParameterGroup):
    """How clusters form and what they earn; defaults are [SCFL] §VI."""

    start_from: str = parameter(
        default="", max_length=64, help="Φ(0): id of a task with whose clusters the first plan begins."
    )
    method: Literal["rounds", "sweep"] = parameter(default="sweep", help="How the search for clusters proceeds.")
    restarts: int = parameter(default=20, at_least=0, at_most=1000, help="Further starts of the search.")
    direct_weight: float | None = parameter(
        default=None, at_least=0, at_most=1, help="ω, the weight of direct trust; left out, the platform's own."
    )
    non_iid: float = parameter(
        default=1.0, at_least=0, at_most=1e6, help="γ of devices that declare none, and the largest γ that counts."
    )
    price: float = parameter(default=0.52, above=0, at_most=1e6, help="λ_p, points for each unit of quality.")
    member_cost: float = parameter(
        default=1.2, at_least=0, at_most=1e6, help="λ_c, points that each member costs its cluster."
    )
    head_reward: float = parameter(
        default=0.0, at_least=0, at_most=1e6, help="ζ, points that the head gets besides its share."
    )
    budget_scale: float = parameter(default=100.0, above=0, at_most=1e6, help="θ1 of ε(α) = θ1 α/(α + θ2), eq (11).")
    budget_shift: float = parameter(default=1.0, above=0, at_most=1e6, help="θ2 of ε(α) = θ1 α/(α + θ2), eq (11).")
    quality: Literal["given", "fitted"] = parameter(
        default="given", help="Take loss_fit and quality_* as given, or fit them to the publisher's measured tasks."
    )
    loss_fit: tuple[float, float, float, float, float] = parameter(
        default=(0.013, 0.0044, 0.0057, 8.18, 0.14), help="μ1 to μ5 of the loss by noise, eq (13)."
    )
    quality_offset: float = parameter(default=102.2444, help="κ2, the quality without loss.", unit="% of accuracy")
    quality_slope: float = parameter(default=35.4278, at_least=0, help="κ1, the quality lost by a unit of loss.")
    noise_tolerance: float = parameter(
        default=0.02, at_least=0, at_most=10, help="The plan stays while no device's σ changes by more than this."
    )


@parameter_group("topology", "mesh")
class MeshParameters(ParameterGroup):
    """How a mesh is planned; the values of [BETTA] are on the preset's page."""

    plan: Literal["betta", "social"] = parameter(
        default="betta", help="Which links are used: those that [BETTA] chooses, or every trusted one."
    )
    trust_threshold: float = parameter(
        default=0.7,
        above=0,
        at_most=1,
        title="Trust for raw parameters",
        help="Combined trust from which two devices exchange raw parameters.",
    )
    relations: tuple[Related, ...] = parameter(
        default=(), help="Kinds of relation that the social graph consists of; none = trust alone."
    )
    relations_need_trust: bool = parameter(
        default=True, help="Whether related devices also need trust above the threshold."
    )
    trust_suffices: bool = parameter(
        default=False, help="Whether trust above the threshold is enough for devices that are not related."
    )
    same_owner_trusted: bool = parameter(default=True, help="Whether devices of one owner trust each other.")
    may_earn_trust: bool = parameter(default=False, help="Whether trust earned since the first plan counts.")
    basic_batch: int = parameter(
        default=32,
        at_least=1,
        at_most=1_000_000,
        title="Samples a round at least",
        help="Size of a basic batch.",
        unit="samples",
    )
    max_degree: int | Literal["recommended"] | None = parameter(
        default="recommended", at_least=1, nullable=True, help="Links per device; null = any number."
    )
    transfers: Literal["parallel", "shared"] = parameter(
        default="shared", help="Whether a device's messages travel in parallel or share its link."
    )
    times: Literal["measured", "declared"] = parameter(default="measured", help="Where link times come from.")
    message_bytes: int = parameter(
        default=0, at_least=0, at_most=2**53, help="Size of a message; 0 = the model's.", unit="bytes"
    )
    default_link_class: LinkClass = parameter(default="wifi", help="Link class of devices that declare none.")
    default_seconds_per_sample: float = parameter(
        default=0.01, above=0, help="Computing time of devices that declare none.", unit="seconds"
    )
    bridge: bool = parameter(
        default=False, help="Whether links with noise at both ends join parts that trust does not connect."
    )
    replan_gain: float = parameter(
        default=0.1, at_least=0, below=1, help="Share of the round's time that a new plan must save."
    )
    wait_share: float = parameter(
        default=0.5, above=0, at_most=1, help="Share of a round during which a device waits for messages."
    )


@parameter_group("radio")
class RadioParameters(ParameterGroup):
    """The channel. The interference puts the reach of the default limit of 0.4 s near 400 m."""

    payload_bits: float = parameter(default=2.5e5, above=0, help="Size of an upload.", unit="bits")
    interference_watts: float = parameter(default=4e-9, at_least=0, help="Interference on a block.", unit="watts")
    fading_decibels: float = parameter(
        default=1.0, at_least=0, at_most=30, help="Standard deviation of fading.", unit="decibels"
    )
    noise_density: float = parameter(default=4e-21, above=0, help="Density of noise.", unit="watts per hertz")


@parameter_group("topology", "cells")
class CellsParameters(RadioParameters):
    """How rounds are scheduled over cells, and how devices find their model."""

    policy: str = parameter(
        default="matching",
        pattern=r"matching|greedy|random|stations|pol_[0-9a-z]{1,40}",
        help='Scheduling policy: "matching", "greedy", "random", "stations" or the id of a trained one.',
    )
    times: Literal["declared", "measured"] = parameter(
        default="declared", help="Upload delays of the registered channel, or as devices measured them."
    )
    seed: int = parameter(
        default=0, at_least=0, at_most=2**53, help="Seed of fading, of the random policy and of what stations try."
    )
    identity_weight: float = parameter(
        default=0.5, at_least=0, at_most=1, help="λ, weight of the loss when a device finds its model."
    )
    relative_loss: bool = parameter(
        default=True, help="Divide losses by their mean, so that λ does not depend on the loss's unit."
    )
    settle_after: int = parameter(
        default=3, at_least=1, at_most=1000, help="Equal choices after which a device downloads its likely models only."
    )
    fairness: float = parameter(
        default=0.5,
        at_least=0,
        at_most=100,
        help="What each round of waiting adds to a device's share when devices are picked; 0 as in [DPVD].",
    )
