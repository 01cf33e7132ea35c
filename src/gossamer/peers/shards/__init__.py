"""Shards: all that one agent needs, in a folder of its own.

The code is organised as follows:
    membership   an agent as a member of a run: numbers, contacts, keys
    shard        a shard cut from a deployment
    sites        the shard of a site, whose data no one pools
    cut_sites    shards of sites, cut from a deployment
    restriction  a site's shard restricted to the members of a membership
    site_files   keys of a site.toml
    manifests    typed models of shard.json and of an agent's metrics
"""
