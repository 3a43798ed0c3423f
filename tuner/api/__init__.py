"""Python API: `tuner.run`, `tuner.tune` and the study object that they return.

The dispatcher runs in a process of its own (`dispatch_process`), as on the command line, so that it
needs neither the main thread nor the signals of a notebook's kernel. The calling process monitors
it (`child`), shows its output (`progress`) and reads the database (`study`).
"""
