"""The command line: ``millstream`` and ``python -m millstream``, one module for each command.

Takes: arguments, the terminal, standard input.
Gives: what the embedded API and the server give, as text.
Never knows: how any of it is done; a command only calls the public face.
"""
