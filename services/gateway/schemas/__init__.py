"""Request bodies, by noun, with the proto's field names. Responses are `coterie.records`."""
