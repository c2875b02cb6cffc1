"""The bridge between Python and the JVM: feeds to Spark, results back, over one socket protocol.

Takes: connections of Spark's tasks that prove the shared secret; the Java sources beside it.
Gives: the frames of a feed to a task, the frames of its results to their view; the compiled jar.
Never knows: what a row means, which gear runs.
"""
