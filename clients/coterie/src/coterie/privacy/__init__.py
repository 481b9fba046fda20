"""Differential privacy for devices: mechanisms, clipping, accounting and the device's own ledger.

Import the module that holds the idea: `gaussian` (how much noise), `stream`, `discrete` and `grid` (drawing it),
`zcdp` and `renyi` (loss of one release and its composition), `clipping` (what bounds the sensitivity), `releases` (what
may leave), `accounting` and `claims` (one charge, many charges, and the message that reports them), `ledger` (the file
that refuses work beyond the device's limit). scipy takes longer to import than all the rest, so functions import it
where they need it.
"""
