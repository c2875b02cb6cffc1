"""Canaries: each private member of Spark, PySpark and py4j that we use is still what it was.

One that fails after an upgrade of Spark names the member, and what Millstream needs it for.
"""

from __future__ import annotations

import inspect
import re
import stat
from contextlib import contextmanager
from datetime import UTC, datetime

import pyspark
import pytest
from py4j.clientserver import JavaClient
from py4j.java_gateway import GatewayClient
from pyspark import SparkContext
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession

from millstream.spark import internals
from millstream.spark.session import _START, TUNING
from millstream.views.lower.analysis import optimized_plan


@contextmanager
def canary(member, needed_for):
    """Fail with the member that an upgrade of Spark has changed, and what needs it."""
    try:
        yield
    except Exception as error:
        pytest.fail(
            f"PySpark {pyspark.__version__}: {member} is not what it was, {error!r}. "
            f"millstream/spark/internals.py needs it for {needed_for}.",
            pytrace=False,
        )


# ---- sessions


def test_java_classes_of_a_session(spark):
    with canary("SparkContext._jvm", "all calls of Java"):
        assert internals.jvm_of(spark).System.getProperty("java.version")


def test_a_cloned_session_has_the_users_functions_and_settings_of_its_own(spark):
    with canary("SparkSession._jsparkSession.cloneSession", "the session of each view"):
        mine = spark.newSession()
        mine.udf.register("canary_twice", lambda n: 2 * n, "bigint")
        clone = internals.cloned_session(mine, {"spark.sql.session.timeZone": "Asia/Tokyo"})
        assert clone.conf.get("spark.sql.session.timeZone") == "Asia/Tokyo"
        assert clone.sql("SELECT canary_twice(21) AS n").collect()[0].n == 42
        assert mine.conf.get("spark.sql.session.timeZone") != "Asia/Tokyo"
        assert clone.sparkContext is spark.sparkContext


def test_the_files_of_a_checkpoint_are_made_by_our_file_system(spark, tmp_path):
    with canary("SessionState.newHadoopConf, RawLocalFileSystem.setPermission", "checkpoints"):
        session = internals.cloned_session(spark, TUNING)
        jvm, java = internals.jvm_of(session), internals.java_session(session)
        hadoop, settings = jvm.org.apache.hadoop.fs, java.sessionState().newHadoopConf()
        file = tmp_path / "folder" / "file"
        path = hadoop.Path(f"file://{file}")
        files = path.getFileSystem(settings)
        assert files.getClass().getName() == TUNING["fs.file.impl"]
        files.create(path).close()
        files.setPermission(path, hadoop.permission.FsPermission("640"))
        assert {each.name for each in file.parent.iterdir()} == {"file", ".file.crc"}
        assert stat.S_IMODE(file.stat().st_mode) == 0o640
        # State is copied from the disk by this one, which must be a LocalFileSystem.
        assert hadoop.FileSystem.getLocal(settings).getClass().getName() == TUNING["fs.file.impl"]


def test_the_bridges_jar_is_loaded(spark):
    with canary("Utils.getContextOrSparkClassLoader", "the bridge's classes in the driver"):
        named = internals.jvm_of(spark).java.lang.Class.forName
        loader = internals.jvm_of(spark).org.apache.spark.util.Utils.getContextOrSparkClassLoader()
        assert named("millstream.bridge.Address", True, loader) is not None
    with canary("SparkContext._jsc.sc().isLocal", "the bridge's classes in executors"):
        # Here the one executor is the driver, which has them; test_cluster.py has others.
        assert spark.sparkContext._jsc.sc().isLocal()
        assert internals.java_session(spark).sparkContext().listJars().isEmpty()


def test_the_context_of_this_process(spark):
    with canary("SparkContext._active_spark_context", "one Spark in one process"):
        assert internals.active_context() is spark.sparkContext
    with canary("SparkContext._jsc.sc().isStopped", "a new Spark where a cluster has ended ours"):
        assert not internals.is_stopped(spark)


UNLISTED = {  # read by their names, without an entry in Spark's list
    "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage",
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows",
    "spark.sql.streaming.checkpointFileManagerClass",
    "fs.file.impl",  # Hadoop's, and the next one
    "fs.file.impl.disable.cache",
}


@pytest.mark.parametrize("name", sorted({*TUNING, *_START} - UNLISTED))
def test_a_setting_exists(spark, name):
    with canary(f"the setting {name}", "the tuning of views"):
        entry = internals.jvm_of(spark).org.apache.spark.internal.config.ConfigEntry
        assert entry.findEntry(name) is not None


# ---- queries


def test_a_frame_of_java_and_back(spark):
    with canary("classic.DataFrame(jdf, session), DataFrame._jdf", "results of SQL"):
        made = internals.frame_of(spark, internals.java_frame(spark.range(3)))
        assert [row.id for row in made.collect()] == [0, 1, 2]


def test_the_writer_of_a_stream_in_java(spark):
    rows = spark.readStream.format("rate").load()
    with canary("DataStreamWriter._jwrite", "the start of views"):
        writer = internals.java_writer(rows.writeStream.format("noop").trigger(availableNow=True))
        assert writer.getClass().getSimpleName() == "DataStreamWriter"
        assert "start" in dir(writer)


def test_no_rows_that_the_optimizer_knows_to_be_none(spark):
    columns = spark.range(0).schema.json()
    with canary(
        "DataType.fromJson, SparkSession.createDataFrame", "what a query gives for no rows"
    ):
        empty = internals.empty_frame(spark, columns)
        assert empty.columns == ["id"]
        plan = internals.java_frame(empty.where("id > 1")).queryExecution().optimizedPlan()
        assert plan.toString().startswith("LocalRelation <empty>")


def test_a_relation_of_which_the_optimizer_knows_nothing_but_its_columns(spark):
    session = internals.cloned_session(spark, {"spark.sql.ansi.enabled": "true"})
    columns = spark.range(0).schema.json()
    with canary("LogicalRDD, CreateViewCommand", "the relations that a view reads"):
        before = internals.add_relation(session, "made", columns)
        made = internals.add_relation(session, "made", columns)
        frame = session.table("made")
        plan = optimized_plan(frame)
        assert plan.getClass().getSimpleName() == "LogicalRDD"
        assert plan.rdd().id() == made != before
        assert (frame.schema.json(), frame.collect()) == (columns, [])


def test_plans_that_compute_the_same_rows_are_merged(spark):
    merger, rows = internals.plan_merger(internals.jvm_of(spark)), spark.range(9)
    one, other, third = (
        optimized_plan(rows.groupBy((rows.id % keys).alias("k")).agg({"id": function}))
        for keys, function in [(3, "sum"), (3, "max"), (4, "sum")]
    )
    found = [merger.merge(plan, False) for plan in (one, other, third)]
    assert [each.mergedPlanIndex() for each in found] == [0, 0, 1]
    merged = merger.mergedPlans().apply(0).plan()
    assert merged.output().size() == 3
    for plan, each in zip((one, other), found[:2], strict=True):
        for own in (plan.output().head(), plan.output().last()):
            same = merged.output().apply(each.outputMap().apply(own))
            assert same.name() == own.name()


@pytest.mark.parametrize(
    ("expression", "depends"),
    [
        ("ts < current_timestamp()", True),
        ("current_date() > DATE '2026-01-01'", True),
        ("ts < 'now'", True),
        ("ts < '2026-01-01'", False),
    ],
)
def test_whether_a_result_depends_on_the_clock(spark, expression, depends):
    rules = "ReplaceExpressions, SpecialDatetimeValues, ComputeCurrentTime"
    with canary(f"Catalyst's {rules}", "refusing the time of day in views"):
        frame = spark.createDataFrame([(datetime(2026, 1, 1, tzinfo=UTC),)], "ts timestamp")
        assert internals.depends_on_clock(frame.selectExpr(f"{expression} AS x")) is depends


# ---- the Java process


def test_java_is_started_as_spark_submit_starts_it(spark):
    with canary("launcher.JavaModuleOptions", "starting Java without spark-submit"):
        options = internals.jvm_of(spark).org.apache.spark.launcher.JavaModuleOptions
        wanted = set(options.defaultModuleOptionArray()) - {"--add-modules=jdk.incubator.vector"}
        assert set(internals.MODULE_OPTIONS) == wanted
    with canary("deploy.SparkSubmit", "starting Java without spark-submit"):
        script = (internals.spark_home() / "bin" / "spark-submit").read_text()
        assert "org.apache.spark.deploy.SparkSubmit" in script


def test_the_gateway_is_as_pyspark_makes_it(spark_owner, spark):
    source = inspect.getsource(launch_gateway)
    with canary("_PYSPARK_DRIVER_CONN_INFO_PATH", "the connection to Java"):
        assert '"_PYSPARK_DRIVER_CONN_INFO_PATH"' in source
        assert spark_owner.log_file.stat().st_size > 0
    with canary("launch_gateway", "names of Java's that PySpark uses"):
        imported = re.findall(r'java_import\(gateway.jvm, "(.+)"\)', source)
        assert imported == list(internals._IMPORTED)
    with canary("gateway.proc, SparkContext._gateway", "ending Java, and seeing that it died"):
        assert internals.java_process(internals.gateway_of(spark)).poll() is None


def test_the_client_that_does_not_write_to_the_root_logger(spark):
    with canary("GatewayClient.send_command", "no lines of py4j on the root logger"):
        signature = str(inspect.signature(GatewayClient.send_command))
        assert signature == "(self, command, retry=True, binary=False)"
        assert JavaClient.send_command is GatewayClient.send_command
        names = ("_get_connection", "_should_retry", "_give_back_connection")
        for name in (*names, "_create_connection_guard"):
            assert callable(getattr(JavaClient, name))
        client = internals.gateway_of(spark)._gateway_client
        assert client.send_command.func is internals._send_command


def test_what_pyspark_remembers_of_java():
    with canary("SparkContext's and SparkSession's class attributes", "a new Java after one died"):
        for name in ("_gateway", "_jvm", "_active_spark_context"):
            assert vars(SparkContext)[name] is not None
        assert vars(SparkSession)["_instantiatedSession"] is not None


def test_errors_that_are_values_are_those_of_pyspark(spark):
    calls = internals.jvm_of(spark).millstream.bridge.Attempt
    with canary("the message of a SparkThrowable", "error messages of views"):
        with pytest.raises(pyspark.errors.AnalysisException) as raised:
            spark.sql("SELECT nothing FROM range(1)")
        java = internals.java_session(spark)
        parsed = calls.parse(java, "SELECT nothing FROM range(1)").value()
        assert calls.rows(java, parsed).error() == str(raised.value)
        assert calls.rows(java, calls.parse(java, "SELECT 1").value()).error() is None
