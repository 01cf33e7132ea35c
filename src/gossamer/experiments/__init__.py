"""What is trained to be compared: a run with its references (and, later, the figures and tables of the paper)."""
