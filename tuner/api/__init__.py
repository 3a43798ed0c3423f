"""Studies from Python: `tuner.run`, `tuner.tune` and the object that they return.

The dispatcher works in a process of its own (`dispatch_process`), as on the command line, so that
a notebook's kernel lends it neither its main thread nor its signals. The calling process watches
it (`child`), shows what it says (`progress`) and reads the database (`study`).
"""
