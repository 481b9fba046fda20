"""Conformance tests of a device against docs/reference/protocol.md, by a simulated platform.

`suite` lists the cases in groups, `cases` and `letter_cases` implement them, `runner` runs them in order, `fixtures`
holds keys, model and task, `server` is the HTTP server, `device_process` starts the device. The simulated platform
trains, pays and stores nothing.
"""
