"""The web console: pages for admins, publishers and owners, drawn from the gateway's REST API."""
