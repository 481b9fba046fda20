"""gRPC in, use case, gRPC out."""
