"""Secure sums: sessions in which a committee of clerks removes the masks from a sum of updates."""
