"""How much of a limit a device has spent, as far as the platform can know.

Limits are their owners' and stay on the devices. What the platform knows is the limit that every device begins with,
and what each reports to have spent.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from coterie.privacy.spending import DEFAULT_LIMIT
from services.console.domain.words import figure

__all__ = ["DEFAULT_LIMIT", "share_of_limit"]


def share_of_limit(report: Mapping[str, Any]) -> float:
    """What a report at the limit's δ is of the limit that devices begin with.

    That limit is about one example replaced, which ε for the unit of all releases replaced covers. 0 where something
    went without noise: no ε describes that, and no limit on ε counts it.
    """
    spent = figure(report["epsilon_replaced"])
    return 0.0 if spent is None or math.isinf(spent) else spent / DEFAULT_LIMIT.epsilon
