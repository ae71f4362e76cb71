"""Choose the hyper-parameters of swept cells by their dev scores."""
