"""Pricing engine: prices, budgets, accounts, payments."""
