"""The platform as a device under test sees it, honest and lying: docs/reference/protocol.md, step by step.

`scene` is what the played platform knows, `lessons` what it does in each step and what it expects, `play` keeps the
order, `server` speaks HTTP. Nothing here is a platform: it trains, pays and stores nothing.
"""
