"""The commands of the package: how one is called, and how its process starts and ends.

`examples` and `cite` are commands themselves. Nothing is imported here, because
`process` has to come before everything that takes long.
"""
