"""Coterie: learning among devices whose owners know and trust each other."""
