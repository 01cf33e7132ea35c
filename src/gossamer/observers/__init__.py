"""Observers of a run for those who watch it; the seam itself is runs/observers.

The code is organised as follows:
    csv_file      a CSV table that grows with each evaluation
    tensorboard   scalars for TensorBoard
    notebook      a progress table in a notebook
    plain_lines   lines with time stamps, where there is no terminal
"""

from gossamer.observers.csv_file import make_csv_observer
from gossamer.observers.notebook import make_notebook_display
from gossamer.observers.plain_lines import make_line_display
from gossamer.observers.tensorboard import make_tensorboard_observer

__all__ = ["make_csv_observer", "make_line_display", "make_notebook_display", "make_tensorboard_observer"]
