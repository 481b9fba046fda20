"""The star: everybody uploads its own update to the platform."""

from __future__ import annotations

from typing import Any, Self

from pydantic import Field, model_validator

from coterie.privacy.gaussian import exact_multiplier
from coterie_api.enums.v1 import enums_pb2 as words
from coterie_api.topology.v1 import topology_pb2 as pb
from services.topology.planners.base import Parameters, Sources, parameters_of, read_section


class UniformPrivacy(Parameters):
    """The same noise for everybody: a multiplier, or the (ε, δ) of one round from which it follows exactly.

    Of a task that says what all its rounds may cost, `target_epsilon` stands beside the multiplier that was chosen.
    """

    noise_multiplier: float | None = Field(default=None, gt=0, le=1000)
    epsilon: float | None = Field(default=None, gt=0, le=1000)
    delta: float = Field(default=1e-6, gt=0, lt=1)
    target_epsilon: float | None = Field(default=None, gt=0, le=1000)
    clip_quantile: float | None = Field(default=None, gt=0, lt=1)
    clip_rate: float | None = Field(default=None, gt=0, le=1)

    @model_validator(mode="after")
    def _one_of_both(self) -> Self:
        if (self.noise_multiplier is None) == (self.epsilon is None):
            raise ValueError(
                "give one of noise_multiplier, epsilon (of one round, with delta) and target_epsilon (of all rounds, "
                "with delta) for privacy uniform"
            )
        return self

    def multiplier(self) -> float:
        """Standard deviation of the noise over the clip norm."""
        if self.noise_multiplier is not None:
            return self.noise_multiplier
        assert self.epsilon is not None
        return exact_multiplier(self.epsilon, self.delta)


class StarPlanner:
    """Plans stars."""

    def check(self, privacy: str, parameters: dict[str, Any]) -> dict[str, Any]:
        if privacy != "uniform":
            return parameters
        uniform = read_section(parameters, "privacy", UniformPrivacy)
        return {**parameters, "privacy": uniform.model_dump(exclude_none=True)}

    def is_slow(self, devices: int, parameters: dict[str, Any]) -> bool:
        """Never: everybody has the same seat."""
        return False

    async def gather(self, request: pb.MakePlanRequest, sources: Sources) -> None:
        """A star depends on nothing but its participants."""

    @staticmethod
    def plan(request: pb.MakePlanRequest, gathered: None, previous: pb.Plan | None) -> pb.Plan:
        noise, because = 0.0, "everybody uploads to the platform"
        if request.privacy == "uniform":
            uniform = read_section(parameters_of(request), "privacy", UniformPrivacy)
            noise = uniform.multiplier()
            if uniform.target_epsilon is not None:
                because += f"; noise for ε = {uniform.target_epsilon:g} in all rounds, δ = {uniform.delta:g}"
        return pb.Plan(
            seats=[
                pb.Seat(
                    device_id=participant.device_id,
                    role=words.ROLE_SOLO,
                    group=-1,
                    block=-1,
                    noise_multiplier=noise,
                    because=because,
                )
                for participant in request.participants
            ]
        )
