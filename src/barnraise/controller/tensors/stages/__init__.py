"""The stages of a contribution's arrival and of a version; `pipeline` lists them in their order."""
