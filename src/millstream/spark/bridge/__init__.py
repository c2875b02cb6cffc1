"""The bridge between Python and the JVM: feeds to Spark, results back, over one socket protocol.

Takes: connections of Spark's tasks that prove the shared secret.
Gives: the frames of a feed to a task, the frames of its results to their view.
Never knows: what a row means.
"""
