"""Learners, training, evaluation and model files."""
