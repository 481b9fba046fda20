"""The Pricing service on the wire."""

from __future__ import annotations

from typing import Any

from coterie_api.pricing.v1 import pricing_pb2 as pb
from coterie_api.pricing.v1 import pricing_pb2_grpc as rpc
from services.kit.rpc.parameters import from_struct, to_struct
from services.kit.rpc.whatif_service import WhatIfService
from services.pricing.domain.incentive_stackelberg import Data
from services.pricing.servicer.messages import to_quote
from services.pricing.usecases.quoting import Quoting

BYTES_PER_ELEMENT = 4


class PricingServicer(rpc.PricingServicer):
    """Prices of rounds."""

    def __init__(self, quoting: Quoting, questions: WhatIfService) -> None:
        self._quoting, self._questions = quoting, questions

    async def QuoteRound(self, request: pb.QuoteRoundRequest, context: Any) -> pb.Quote:
        devices = [participant.device_id for participant in request.participants]
        result = await self._quoting.quote(
            request.task_id,
            request.round,
            incentive=request.incentive,
            document=from_struct(request.parameters),
            devices=devices,
            rounds=request.rounds,
            data=_data(request),
        )
        return to_quote(result)

    async def GetQuote(self, request: pb.GetQuoteRequest, context: Any) -> pb.Quote:
        return to_quote(await self._quoting.get(request.task_id, request.round))

    async def CheckParameters(self, request: pb.CheckParametersRequest, context: Any) -> pb.CheckParametersReply:
        completed = self._quoting.check_parameters(
            request.incentive, from_struct(request.parameters), request.escrow_microcredits, request.rounds
        )
        return pb.CheckParametersReply(parameters=to_struct(completed))

    async def WhatIf(self, request: pb.WhatIfRequest, context: Any) -> pb.WhatIfReply:
        return pb.WhatIfReply(output_json=await self._questions.what_if(request.solver, request.input_json))


def _data(request: pb.QuoteRoundRequest) -> Data | None:
    """What noise is spread over; None where the caller does not say."""
    if not request.model_bytes:
        return None
    return Data(
        samples=tuple(participant.samples for participant in request.participants),
        counted=tuple(participant.counted for participant in request.participants),
        elements=request.model_bytes / BYTES_PER_ELEMENT,
        clip_norm=request.clip_norm,
    )
