"""Client of the gateway, with caches and downloads."""
