"""How checkpoints are written: in the background, as folders of files, as copies of a state."""
