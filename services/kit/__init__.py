"""What every service needs and no service owns."""
