"""Floors: test scores of predictors without a neural network, which a trained model has to beat."""
