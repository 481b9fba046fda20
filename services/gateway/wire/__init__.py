"""What goes over the wire: JSON and problems out, bodies in pieces, messages to and from JSON, the OpenAPI document."""
