"""What comes in over REST: one module per noun family; names are the proto's. What goes out is `coterie.records`."""
