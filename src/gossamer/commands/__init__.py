"""The commands of `gossamer`, one file each: they parse, call and print.

The code is organised as follows:
    common     what all share: a mistake told plainly, settings, data, progress
    options    one command-line option for each setting
    logs       log lines on standard error, --log-level
    train      gossamer train
    predict    gossamer predict
    topology   gossamer topology
    launch     gossamer launch
    cluster    gossamer cluster
    shard      gossamer shard
    keys       gossamer keys
    peer       gossamer peer
    reproduce  gossamer reproduce
"""
