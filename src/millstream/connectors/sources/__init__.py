"""Source connectors: a module each, named as ``connector = '...'`` says, with its ``CONNECTOR``."""
