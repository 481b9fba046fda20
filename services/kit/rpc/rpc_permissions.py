"""The methods that each service may call; all others are refused.

With mutual TLS the caller is the service that its certificate names: a compromised topology planner can read trust but
cannot create keys. On Unix sockets all services run as one user, and the folder's mode excludes other users.
"""

from __future__ import annotations

PACKAGE = "coterie_api"

_GATEWAY = """
    trust.v1.Registry: Authenticate CreateKey CreateOwner EraseDevice GetDevice GetOwner Heartbeat IssueToken ListAudit
        ListDevices ListKeys ListOwners RegisterDevice RevokeDevice RevokeKey RotateKey RotateKeys UpdateDevice
        UpdateOwner VerifyAudit
    trust.v1.Links: AnswerDecision BeginSession ClaimLink Decide EndLink ListDecisions ListLinks MakeLink PutNote
    trust.v1.Trust: DeclareFriendship DeriveRelations ExplainTrust GetGraph GetHistory GetImport Import ListFriendships
        ListInteractions ListLosses ListPeers ListRelations RecordInteractions WhatIf
    topology.v1.Topology: GetPlan ListCells ListPolicies PutCell RemoveCell ReportLinks TrainPolicy WhatIf
    pricing.v1.Pricing: GetQuote WhatIf
    pricing.v1.Ledger: Deposit GetAccount GetPrivacy GetStatement ListAccounts ListPayments Summarise Verify
    aggregation.v1.Tasks: AdmitModel AnswerEvaluation GetEvaluation AuthoriseDownload CancelTask CreateTask Enrol
        ForgetModel GetRound GetTask ListContributions ListEnrolments ListEvents ListMeasuredTasks ListMeasurements
        ListModels ListParticipations ListRounds ListTasks PruneTasks RegisterModel ReplayTask StartTask SweepBlobs
        ReportMeasurement WhatIf Withdraw
    aggregation.v1.Work: AdmitLetter AdmitUpdate DeclineWork ForgetLetters GetWork ListLetters ObjectToVerdict
        SendLetter SubmitUpdate
    aggregation.v1.Sums: AdmitShare GetCommits GetSurvivors ListDuties ListSumLetters PutCommit PutAnswer
        PutReadyCheck PutKeyOffer PutShare ReadSum
"""
_AGGREGATION = """
    trust.v1.Registry: GetDevices
    trust.v1.Trust: GetMatrix RecordInteractions
    topology.v1.Topology: CheckParameters ChooseClerks GetPlan ListBlobs MakePlan
    pricing.v1.Pricing: CheckParameters QuoteRound
    pricing.v1.Ledger: OpenEscrow ReleaseEscrow SettleRound
"""
_TOPOLOGY = """
    trust.v1.Registry: GetDevices
    trust.v1.Trust: GetMatrix GetRelated
"""
_STATION = """
    topology.v1.Stations: Decide LeaveCell NextQuestion TakeCell
"""
_PRICING = """
    trust.v1.Trust: GetDeclared GetMatrix
"""


def _read(text: str) -> frozenset[str]:
    """Parse full method names: `/package.Service/Method`."""
    result, service = set(), ""
    for word in text.split():
        if word.endswith(":"):
            service = word[:-1]
        else:
            result.add(f"/{PACKAGE}.{service}/{word}")
    return frozenset(result)


ALLOWED = {
    "gateway": _read(_GATEWAY),
    "aggregation": _read(_AGGREGATION),
    "topology": _read(_TOPOLOGY),
    "pricing": _read(_PRICING),
    "station": _read(_STATION),
}

PUBLIC_RPCS = _read("trust.v1.Registry: RegisterDevice trust.v1.Links: BeginSession ClaimLink")
"""Methods that the gateway may call for an anonymous caller."""
