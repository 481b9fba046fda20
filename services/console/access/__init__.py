"""Who is signed in, and what browsers may do."""
