"""The web console: pages for admins, publishers and owners, drawn from what the gateway's REST says."""
