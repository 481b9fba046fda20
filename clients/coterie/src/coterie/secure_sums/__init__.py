"""Secure sums: the platform learns the sum of its devices' updates and nothing else about them.

Each device masks its whole numbers, seals the seeds of its masks to a small committee of clerks, and sends one message;
when the round closes the clerks commit to the survivors and report the sum of exactly their masks.

`masks` (shares, seeds, streams), `grid` (resolution of the numbers), `canonical` and `terms` (the documents that all
parties bind to), `acceptance` (a device's checks before it masks), `letters` and `uploads` (what it sends), `circle`
(the devices its owner knows), `contribution` and `answers` (its whole numbers and their price), `notes` (records that
prevent a second sum), `clerk` and `committee_store` (a clerk's work and its file).
"""
