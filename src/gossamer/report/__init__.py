"""Tables, progress bars and pictures: arrays and records in, nothing computed.

The code is organised as follows:
    terminal      tables in the terminal
    bars          progress bars
    curves        curves of a run, and the style of all pictures
    panels        panels of several curves
    agent_graph   agents on a map with their links
    predictions   CSV of predictions
    theory        picture of Theorem 2
    traffic       picture of traffic forecasts
"""
