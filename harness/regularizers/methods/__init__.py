"""The regularizers of the field, one file per kind of site that they act on."""
