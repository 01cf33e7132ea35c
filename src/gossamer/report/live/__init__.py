"""Runs that go on, shown live: in a browser, and as Prometheus metrics.

The code is organised as follows:
    view    the view of a run that pages and metrics show
    feed    the latest view, handed from the run to those who watch it
    metrics          Prometheus metrics over HTTP
    metric_families  what they are named, and how they follow from a view
"""
