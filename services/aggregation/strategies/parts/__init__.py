"""The parts of a server strategy. The defaults are those of a star; a strategy replaces the parts that differ."""
