"""The console: one page at ``/`` on which people see what flows, and ask.

Takes: nothing. Gives: routes to static files, without a build step and without downloads from
elsewhere. It never knows the database: the page uses the server's public endpoints, through the
JavaScript module that other pages can use as well.
"""
