"""What a round of several models is summed up as, by model line."""

from __future__ import annotations

from coterie.records.enums import ParticipationState, Role
from services.aggregation.domain.records import Participation
from services.aggregation.rounds.closing import mean_metrics


def part(device: str, samples: int, line: int, loss: float, state: str = "delivered") -> Participation:
    return Participation(
        "tsk_1",
        1,
        device,
        "own_1",
        Role.SOLO,
        ParticipationState(state),
        samples,
        b"",
        metrics={"loss": loss},
        model_index=line,
    )


def test_figures_are_means_over_all_and_by_model_line() -> None:
    """Line 0: (1·10 + 3·30)/40 = 2.5; line 1: 5; all: (10 + 90 + 5·60)/100 = 4; who did not deliver counts nowhere."""
    parts = [part("a", 10, 0, 1.0), part("b", 30, 0, 3.0), part("c", 60, 1, 5.0), part("d", 9, 1, 99.0, "dropped")]
    assert mean_metrics(parts, 2) == {"loss": 4.0, "loss[0]": 2.5, "loss[1]": 5.0}
    assert mean_metrics(parts) == {"loss": 4.0}
