"""What publishers, admins and devices may ask for: one method per intention, one transaction each."""
