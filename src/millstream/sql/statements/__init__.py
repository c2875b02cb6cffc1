"""Statements: from text to checked statements, and back to text.

Takes: text and the values of its parameters.
Gives: one frozen object for each statement, with its place in the text.
Never knows: what exists, schemas, how a statement is carried out.
"""
