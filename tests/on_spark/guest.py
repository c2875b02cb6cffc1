"""A child that uses the Java of this process: it can be killed for real, and starts in a second.

Its Spark queries end like those of a process whose Java outlives it: when their connections do.
"""

from __future__ import annotations

import os

from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession


def invitation(spark):
    """The environment of a child that may use the Java of a session."""
    gateway = spark.sparkContext._gateway.gateway_parameters
    return {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(gateway.port),
        "PYSPARK_GATEWAY_SECRET": gateway.auth_token,
    }


def guest():
    """A session in the Java that this process was invited to."""
    gateway = launch_gateway()
    context = gateway.jvm.org.apache.spark.SparkContext.getOrCreate()
    java = gateway.jvm.org.apache.spark.api.java.JavaSparkContext(context)
    return SparkSession(SparkContext(gateway=gateway, jsc=java))
