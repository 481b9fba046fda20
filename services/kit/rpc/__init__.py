"""gRPC servers and channels, authentication, errors, paging and conversions between messages and records."""
