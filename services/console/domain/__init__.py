"""Pure computation of what pages show: no browser, no network, no clock."""
