"""The commands of `gossamer`, one file each: they parse, call and print.

The code is organised as follows:
    common     error messages, settings, data, progress
    options    one command-line option for each setting
    logs       log on standard error
    watching   servers of a run's views, for --page and --metrics
    new        gossamer new
    train      gossamer train
    predict    gossamer predict
    export     gossamer export
    topology   gossamer topology
    audit      gossamer audit
    launch     gossamer launch
    cluster    gossamer cluster
    ranks      a torchrun job around a command
    shard      gossamer shard
    keys       gossamer keys
    peer       gossamer peer
    status     gossamer status
    watch      gossamer watch
    leave      gossamer leave
    admit      gossamer admit
    gather     gossamer gather
    replay     gossamer replay
    reproduce  gossamer reproduce
    report     gossamer report
    docs       gossamer docs
"""
