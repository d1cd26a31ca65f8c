"""The commands of the package: how one is called, and how its process starts and ends.

`examples` is a command itself. Nothing is imported here, because `process` has to come
before everything that takes long.
"""
