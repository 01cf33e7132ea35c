"""Reports: one HTML file for a run, for several runs side by side, or for a reproduction of the paper.

The code is organised as follows:
    facts          what a run directory says, without its data set
    held_out       predictions held against the targets
    markup         HTML of parts; where text is escaped
    overview       scores and key numbers
    evaluations    curves
    quality        confusion matrix, counts of labels, errors
    agents_part    map and table of agents
    topology_part  the certificate, messages by phase
    changes        memberships, what an audit found
    origin         settings, versions, commands
    comparison     runs side by side
    reproduction   figures and claims of the paper
    page           the whole page
"""
