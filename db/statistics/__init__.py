"""Statistical tests and estimators on numbers, without a database."""
