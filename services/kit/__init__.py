"""Code that every service shares."""

import os

# gRPC reads this when it is imported. Its fork handlers can hang a child between fork and exec, and no child uses gRPC.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
