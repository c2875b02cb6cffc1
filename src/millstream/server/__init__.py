"""The database for other processes: HTTP, Server-Sent Events, WebSocket, PostgreSQL's protocol.

Takes: an open database, the keys of those who may use it, and the bytes of clients.
Gives: each connection a ``Session`` of its tenant, and what its role may do there.
Never knows: how rows are stored, planned or delivered; a slow client costs only itself.
"""
