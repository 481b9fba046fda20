"""Settings of the trust registry; `COTERIE_…` variables change them."""

from __future__ import annotations

import math
from pathlib import Path

from pydantic import Field

from services.kit.runtime.settings import ServiceSettings
from services.trust.domain.graph import Paths
from services.trust.domain.parameters import DAY_SECONDS, EvidenceRule, TrustParameters


class TrustSettings(ServiceSettings):
    """The settings of every service, and those of trust."""

    admin_key_file: Path | None = Field(
        default=None, description="File with an admin key to adopt (ck_….…); empty = create data_dir/admin.key."
    )
    heartbeat_flush_seconds: float = Field(default=2.0, gt=0, description="Interval of writing heartbeats, seconds.")

    trust_halving_days: float = Field(
        default=30.0,
        ge=0,
        description="Days in which evidence halves; 0 = never. A change recomputes all sums at start.",
    )
    trust_penalty: float = Field(default=2.0, gt=0, description="How many good interactions a bad one outweighs.")
    trust_full_seconds: float = Field(
        default=60.0,
        gt=0,
        description="Seconds from which an interaction counts fully. A change recomputes all sums at start.",
    )
    trust_direct_weight: float = Field(default=0.8, ge=0, le=1, description="Share of direct trust in combined trust.")

    trust_paths: Paths = Field(
        default=Paths.SHORTEST,
        description="Which chain carries indirect trust: the best of the shortest, or the best of up to three ties.",
    )
    trust_prior_weight: float = Field(
        default=5.0, gt=0, description="Weight of the prior at zero trust, in meetings: few meetings give little trust."
    )
    trust_witness_cap: float = Field(
        default=0.5, ge=0, lt=1, description="Direct trust that rounds done well can reach without meetings."
    )
    trust_pair_day: float = Field(
        default=8.0, gt=0, description="Interactions of each sign that count for a pair in one day."
    )
    trust_reporter_day: float = Field(
        default=100.0, gt=0, description="Bad interactions of one reporter that count in one day."
    )
    trust_meeting_window_seconds: float = Field(
        default=600.0, ge=0, description="Largest difference between the two ends' times of one meeting, seconds."
    )
    trust_confirm_days: float = Field(
        default=7.0, ge=0, description="Days after a meeting in which its second report may arrive."
    )

    relation_priors: bool = Field(
        default=False, description="Count relations as a few interactions before there are any (not in the paper)."
    )

    @property
    def trust_parameters(self) -> TrustParameters:
        """The parameters of direct and combined trust."""
        halving = self.trust_halving_days * DAY_SECONDS
        return TrustParameters(
            decay_rate=math.log(2.0) / halving if halving else 0.0,
            penalty=self.trust_penalty,
            full_duration_seconds=self.trust_full_seconds,
            direct_weight=self.trust_direct_weight,
            paths=self.trust_paths,
        )

    @property
    def evidence_rule(self) -> EvidenceRule:
        """The conditions on live evidence."""
        return EvidenceRule(
            prior_weight=self.trust_prior_weight,
            witness_cap=self.trust_witness_cap,
            pair_day=self.trust_pair_day,
            reporter_day=self.trust_reporter_day,
            meeting_window_seconds=self.trust_meeting_window_seconds,
            confirm_seconds=self.trust_confirm_days * DAY_SECONDS,
        )

    @property
    def admin_key_path(self) -> Path:
        """Where the admin key is, or will be created."""
        return self.admin_key_file or self.data_dir / "admin.key"
