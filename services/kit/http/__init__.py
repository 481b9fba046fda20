"""Connection limits and trusted proxies of the HTTP edge."""
