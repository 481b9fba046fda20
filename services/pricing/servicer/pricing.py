"""The Pricing service on the wire."""

from __future__ import annotations

from typing import Any

from coterie_api.pricing.v1 import pricing_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2_grpc as rpc
from services.kit.questions import Questions
from services.pricing.servicer.messages import to_quote
from services.pricing.usecases.quoting import Quoting


class PricingServicer(rpc.PricingServicer):
    """Prices of rounds."""

    def __init__(self, quoting: Quoting, questions: Questions) -> None:
        self._quoting, self._questions = quoting, questions

    async def QuoteRound(self, request: pb.QuoteRoundRequest, context: Any) -> pb.Quote:
        devices = [participant.device_id for participant in request.participants]
        found = await self._quoting.quote(
            request.task_id, request.round, request.incentive, request.parameters, devices, request.rounds
        )
        return to_quote(found)

    async def GetQuote(self, request: pb.GetQuoteRequest, context: Any) -> pb.Quote:
        return to_quote(await self._quoting.get(request.task_id, request.round))

    async def CheckParameters(self, request: pb.CheckParametersRequest, context: Any) -> pb.CheckParametersReply:
        completed = self._quoting.check_parameters(
            request.incentive, request.parameters, request.escrow_microcredits, request.rounds
        )
        return pb.CheckParametersReply(parameters=completed)

    async def WhatIf(self, request: pb.WhatIfRequest, context: Any) -> pb.WhatIfReply:
        return pb.WhatIfReply(output_json=await self._questions.what_if(request.solver, request.input_json))
