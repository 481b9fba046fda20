"""A task's sums, privacy and noise when the device joined it; the device never accepts less.

Stored in the device's folder under `joined/`. The first record counts whatever the platform sends at the next start,
except that a task with clear sums may become secure.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coterie.parameters.pricing import CorrelatedParameters
from coterie.parameters.privacy import TrustPrivacy, UniformPrivacy
from coterie.parameters.task import SumsParameters
from coterie.privacy.files import refuse_wide_permissions, write_private_file
from coterie.privacy.question_text import is_survey
from coterie.secure_sums.acceptance import Promise
from coterie.secure_sums.answers import answer_noise

MOST_CLERKS = 4
"""Most clerks of a separate sum of a part of the devices."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A task as its owner saw it when joining.

    Attributes:
        privacy: its privacy.
        secure: whether its sums are.
        clerks, threshold: m and t.
        colluders: participants assumed to collude with the platform; None for the default.
        noise_multiplier: z of the sum; 0 without promised noise.
        variance_low, variance_high: of a survey, the least and most noise variance of an answer; 0 for other tasks.
        apart: whether each cluster is a separate sum whose clerks are up to 4 of its members.
        by_trust: whether the noise of a sum depends on trust in its clerks.
        noise_alone: in that case, the noise multiplier of a device alone; 0 without promised noise.
    """

    privacy: str
    secure: bool = False
    clerks: int = 4
    threshold: int = 2
    colluders: int | None = None
    noise_multiplier: float = 0.0
    variance_low: float = 0.0
    variance_high: float = 0.0
    apart: bool = False
    by_trust: bool = False
    noise_alone: float = 0.0

    @classmethod
    def of(cls, privacy: str, parameters: Mapping[str, Any], *, apart: bool = False) -> Joined:
        """Read from a task's specification."""
        sums, uniform = SumsParameters.of(parameters), UniformPrivacy.of(parameters)
        prices = CorrelatedParameters.of(parameters)
        alone = TrustPrivacy.of(parameters).noise_max if privacy in TrustPrivacy.choices else uniform.multiplier()
        return cls(
            privacy=privacy,
            secure=sums.mode == "secure",
            clerks=sums.clerks,
            threshold=sums.threshold,
            colluders=sums.colluders,
            noise_multiplier=uniform.multiplier(),
            variance_low=prices.variance_low if is_survey(parameters) else 0.0,
            variance_high=prices.most_variance if is_survey(parameters) else 0.0,
            apart=apart,
            by_trust=apart and privacy in TrustPrivacy.choices,
            noise_alone=alone,
        )

    def promise(self, least: int, honest: int = 0, count: int = 0, noise: float = 0.0) -> Promise:
        """Return what the terms of a sum of at least `least` devices, `honest` of them honest, must satisfy.

        The clerks of a separate sum are among its `count` members. Noise that depends on trust is taken from the terms:
        it is charged as it is, and a sum without noise as a raw update.
        """
        usual = max(self.threshold - 1, math.ceil(0.1 * least))
        colluders = usual if self.colluders is None else self.colluders
        clerks = min(MOST_CLERKS, count) if self.apart else self.clerks
        if self.variance_low:
            noise = answer_noise(honest, self.variance_low)
        elif not self.by_trust:
            noise = self.noise_multiplier
        return Promise(clerks, self.threshold, colluders, noise)


def load_or_store(path: Path, shown: Joined) -> Joined:
    """Return the stored record of a task; store and return `shown` if there is none or the task has become secure."""
    known = read(path)
    if known is not None and (known.secure or not shown.secure):
        return known
    write_private_file(path, json.dumps(dataclasses.asdict(shown), indent=2).encode(), replace=True)
    return shown


def read(path: Path) -> Joined | None:
    """Load the record; None without a file."""
    try:
        refuse_wide_permissions(path)
        return Joined(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
