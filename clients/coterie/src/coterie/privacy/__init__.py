"""Differential privacy for devices: mechanisms, clipping, accounting and the device's own ledger.

Import the module that holds the idea: `gaussian` and `laplace` (noise and its calibration), `zcdp` and `renyi`
(loss of one release and its composition), `subsampling` (amplification), `clipping` (what bounds the sensitivity),
`accounting` (one charge, many charges), `ledger` (the file that refuses work beyond the device's limit). scipy takes
longer to import than all the rest, so functions import it where they need it.
"""
