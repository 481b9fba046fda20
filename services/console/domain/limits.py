"""Share of the default privacy limit that a device has spent.

Owners' limits stay on the devices. The platform knows only the default limit and the spending that devices report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coterie.privacy.spending import DEFAULT_LIMIT
from services.console.domain.words import figure

__all__ = ["DEFAULT_LIMIT", "share_of_limit"]


def share_of_limit(report: Mapping[str, Any]) -> float:
    """Return the share of the default limit that a report at the limit's δ has spent.

    The limit is for replacing one example, which `epsilon_replaced` covers. The share is 0 after a release without
    noise: no ε describes it, and no limit on ε counts it.
    """
    spent = figure(report["epsilon_replaced"])
    return 0.0 if spent is None or math.isinf(spent) else spent / DEFAULT_LIMIT.epsilon
