"""What a task said about its sums, privacy and noise when the device joined it. Nothing less is taken later.

Kept in the device's folder under `joined/`. What was said first counts, whatever the platform says at the next start,
but that a task whose sums were clear may become secure.
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
"""Clerks of a sum apart, where it has as many members."""


@dataclass(frozen=True, slots=True)
class Joined:
    """A task as its owner was shown it.

    Attributes:
        privacy: its privacy.
        secure: whether its sums are.
        clerks, threshold: m and t.
        colluders: participants assumed to work with the platform; None where the task leaves it to the default.
        noise_multiplier: z of the sum; 0 where no noise was promised.
        variance_low, variance_high: of a survey, the least and most noise an answer may have; 0 for other tasks.
        apart: whether parts of its devices are sums of their own, whose clerks are up to 4 of their members: clusters.
        by_trust: whether the noise of a sum goes by trust in its clerks.
        noise_alone: there, the noise multiplier of a device alone; 0 where no noise was promised.
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
        """From a task's specification."""
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
        """What the terms of a sum of at least so many, so many of them honest, must keep to.

        Of a sum apart the clerks are among the `count` members; where noise goes by trust in them it is as the terms
        have it: it is charged as it is, and none at all as a raw update.
        """
        usual = max(self.threshold - 1, math.ceil(0.1 * least))
        colluders = usual if self.colluders is None else self.colluders
        clerks = min(MOST_CLERKS, count) if self.apart else self.clerks
        if self.variance_low:
            noise = answer_noise(honest, self.variance_low)
        elif not self.by_trust:
            noise = self.noise_multiplier
        return Promise(clerks, self.threshold, colluders, noise)


def kept(path: Path, shown: Joined) -> Joined:
    """What counts for a task shown like this: what the file says, or this, which the file says from now on."""
    known = read(path)
    if known is not None and (known.secure or not shown.secure):
        return known
    write_private_file(path, json.dumps(dataclasses.asdict(shown), indent=2).encode(), replace=True)
    return shown


def read(path: Path) -> Joined | None:
    """What the file says; None where there is none."""
    try:
        refuse_wide_permissions(path)
        return Joined(**json.loads(path.read_bytes()))
    except FileNotFoundError:
        return None
