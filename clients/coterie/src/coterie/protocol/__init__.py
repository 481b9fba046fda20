"""Device keys, sealed letters and the HTTP transport."""
