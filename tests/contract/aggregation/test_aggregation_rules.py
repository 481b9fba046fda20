"""Rules over the wire: what-if answers, and rounds that close by a task's rule."""

from __future__ import annotations

import json

import pytest

from coterie_api.aggregation.v1 import aggregation_pb2 as pb
from services.kit.caller import Caller, set_caller
from services.kit.errors import InvalidInput, NotFound, PermissionDenied
from tests.contract.aggregation.conftest import House


async def test_what_if_answers_publishers_by_the_solvers_name(house: House) -> None:
    client = await house.start()
    set_caller(Caller("publisher", "pub_1"))
    question = pb.WhatIfRequest(solver="combine", input_json='{"rule": "median", "updates": [[1], [5], [2]]}')
    assert json.loads((await client.tasks.WhatIf(question)).output_json)["result"] == [2.0]
    with pytest.raises(InvalidInput, match="did you mean 'median'"):
        await client.tasks.WhatIf(pb.WhatIfRequest(solver="combine", input_json='{"rule": "medan", "updates": [[1]]}'))
    with pytest.raises(NotFound, match="choose one of: combine"):
        await client.tasks.WhatIf(pb.WhatIfRequest(solver="oracle", input_json="{}"))
    set_caller(Caller("device", "dev_a"))
    with pytest.raises(PermissionDenied):
        await client.tasks.WhatIf(question)
