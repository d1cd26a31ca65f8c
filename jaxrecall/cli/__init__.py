"""The commands of the package, and how their processes start and end.

`examples` is itself a command. Nothing is imported here, because `process` must be
loaded before everything that takes long.
"""
