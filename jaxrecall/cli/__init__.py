"""The commands of the package, and how their processes start and end.

The module `examples` is itself a command. Nothing is imported here, because `process`
must be loaded before every module that takes long to load.
"""
