"""What pages show, worked out from plain data: no browser, no network, no clock."""
