"""Figures and tables of the paper, one file each, with the claims that each is judged by.

The code is organised as follows:
    setup          data sets, networks and step sizes of Sec. V
    trials         many runs, one after the other or in worker processes
    reproduction   a figure's folder: claims, tables, pictures
    verdicts       verdicts that follow from claims
    fig2           sparsity against the spectral gap
    fig3           distributed against centralised
    fig4           fewer links
    fig5           order of consensus and statistics
    fig6           rare consensus
    traffic        data and networks of Sec. V-E
    table2         traffic forecasts
    theory         Theorem 2 on a real run
    bounds         inequalities of Theorem 2's proof
    changing       links that fail; not of the paper
"""
