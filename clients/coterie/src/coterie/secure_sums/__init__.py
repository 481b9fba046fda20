"""Secure sums: the platform learns the sum of its devices' updates and nothing else about them.

Each device masks its whole numbers, seals the seeds of its masks to a small committee of clerks, and speaks once; when
the round closes the clerks agree on the survivors and tell the sum of exactly their masks.

`masks` (shares, seeds, streams), `grid` (how fine the numbers are), `canonical` and `terms` (the documents everybody
binds to), `acceptance` (what a device checks before it masks), `letters` and `uploads` (what it sends), `circle` (whom
its owner knows), `contribution` and `answers` (its whole numbers and their price), `notes` (what it must not forget),
`clerk` and `cabinet` (a clerk's work and what it keeps).
"""
