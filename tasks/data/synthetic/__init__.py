"""Writers of small synthetic sets in the published formats."""
