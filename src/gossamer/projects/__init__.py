"""A new project: settings, a script that prepares its data, and a README whose commands run at once.

The files are those beside this one, written as they are but for the project's name.

The code is organised as follows:
    writing  the folder of a new project
"""
