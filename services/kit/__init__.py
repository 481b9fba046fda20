"""What every service needs and no service owns."""

import os

# No fork of ours goes on with gRPC; with its handlers a child may stop between fork and exec. Read when gRPC is loaded.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
