"""Runs that go on, shown live: in a browser, and as Prometheus metrics.

The code is organised as follows:
    view             the view of a run that pages and metrics show
    feed             the latest view, handed from the run to those who watch it
    pace             the processor time that showing a run may take
    publisher        the thread that asks a source for views
    simulation       source: a run in this process
    own_page         source: the agent of this process
    folders          source: a run directory, or agents' folders
    run_directory    a run directory that is watched
    agents           agents with a process each, by their reports
    memberships      memberships by agents' folders
    happenings       lines about what has happened to agents
    evaluations      evaluations as a view has them
    summed           evaluations of a private run, from its agents' sums
    certificates     the topology's certificate as a view has it
    traffic          bytes on the links of a simulated run
    layout           places of agents on the map
    log_lines        the last lines of the log
    addresses        HOST:PORT of page and metrics, and their URLs
    bounded_server   the HTTP server of page and metrics
    request_handler  a request, read within bounds
    metrics          Prometheus metrics over HTTP
    metric_families  what they are named, and how they follow from a view
    metrics_client   agents on other machines, read from their metrics
    server           the live page's server
    streams          its server-sent events
    changes          what is new in a view
    access           hosts under which it answers, the token
"""
