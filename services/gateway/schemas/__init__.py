"""What goes in and out over REST: one module per noun family; names are the proto's."""
