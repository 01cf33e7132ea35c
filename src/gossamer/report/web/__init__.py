"""Parts of pages and reports in a browser: style sheets and scripts of our own, nothing from elsewhere.

The code is organised as follows:
    assets    style sheets and scripts, as files of a server or inside one HTML file
"""
