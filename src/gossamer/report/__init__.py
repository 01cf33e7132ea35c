"""Tables, progress bars and pictures of results; nothing is computed here.

The code is organised as follows:
    terminal         tables in the terminal
    score_text       names and numbers of scores as text
    result_text      a result as a few lines, and as a table in notebooks
    agent_tables     tables of agents: shards, processes
    bars             progress bars
    style            colours of models and agents, plain axes, resolution
    curves           curves of a run
    panels           figures of several panels
    agent_graph      the agents' graph with the spectrum of C; sparsity of C
    topology_tables  tables of `gossamer topology` in the terminal
    topology_files   files of `gossamer topology`
    sequence_text    contraction of links that change, in words
    csv_tables       CSV of rows
    predictions      CSV of predictions
    timeline         picture of a run whose agents leave and join
    timeline_tables  the same as a table in the terminal
    theory           picture of Theorem 2
    traffic          picture of Table II
    audit_tables     tables of `gossamer audit` in the terminal
    live             runs that go on: the live page, Prometheus metrics
    web              style sheets and scripts of pages and reports in a browser
    guides           pages of the documentation
    html             reports: one HTML file for runs and reproductions
    reconstructions  picture of an audit: features beside reconstructions
"""
