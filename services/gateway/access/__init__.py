"""Authentication, the table of roles, the guard of every route, and ownership."""
