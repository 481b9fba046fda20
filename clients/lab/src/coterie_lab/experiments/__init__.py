"""The experiments, a small declarative module for each paper's part."""
