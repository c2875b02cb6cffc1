"""Every private member of Spark, PySpark and py4j that Millstream touches, in one place.

Takes PySpark's public objects: a session, a DataFrame, a gateway. Each function is named for what
it gives. When Spark is upgraded, ``tests/on_spark/test_internals.py`` has a test for each of them
that says what broke. Nothing else in Millstream uses a private member of theirs.

The Java in ``java/millstream`` is compiled against the Spark at hand, so its compilation is its own
test. Beyond the public API of data sources (``connector``, ``types``, ``vectorized``) it uses,
below ``org.apache.spark.sql``:

- Attempt: ``classic.Dataset.toArrowBatchRdd`` and ``ofRows``, ``classic.SparkSession.sessionState``
- PlanParts, Bounds, Sized: ``catalyst.trees``, ``catalyst.analysis``, ``catalyst.expressions`` and
  ``catalyst.plans.logical``, ``SessionState.functionRegistry`` and ``tableFunctionRegistry``
- Setup: ``execution.LogicalRDD``, ``execution.command.CreateViewCommand``
- Launch: ``catalyst.parser``, ``deploy.SparkSubmit``, Janino as Spark has it
- LogStream, LiveReader: ``connector.read.streaming.SupportsRealTimeMode``, ``SupportsRealTimeRead``
- ChangeSink: ``internal.connector.SupportsStreamingUpdateAsAppend``
- ChangeWriter, Frames: ``execution.arrow.ArrowWriter``, ``util.ArrowUtils``,
  ``catalyst.InternalRow``
- LocalFiles: that ``RawLocalFileSystem`` of Hadoop makes files with permissions by its own
  ``setPermission``
- the dataflow: ``streaming.StatefulProcessor``, the ``ImplicitGroupingKeyTracker`` of
  transformWithState, ``catalyst.expressions`` and ``catalyst.plans.logical``,
  ``execution.window.AggregateProcessor``
"""

from __future__ import annotations

import importlib
import importlib.util
import os
import struct
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from millstream.errors import PipelineError

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping

ALLOW_LIST_CHECK: Final = "spark.sql.streaming.realTimeMode.allowlistCheck"
"""The setting, not documented, by which real-time mode refuses operators that it does not list."""

ASYNC_PROGRESS: Final = "spark.sql.streaming.realTimeMode.asyncProgressTrackingByDefault.enabled"
"""The setting, not documented, by which queries without state write their progress later."""

EXTENSIONS_OF_JARS: Final = "spark.sql.extensions.test.loadFromCp"
"""The setting, not documented, by which Spark looks for extensions in the jars that it has.

Its own jars have one, two internal functions of MLlib, which takes more than half a second.
"""


class JavaNames:
    """Packages and classes of Java, each looked up once: py4j asks Java for every name anew."""

    def __init__(self, found: Any) -> None:  # noqa: ANN401
        self._found = found

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        from py4j.java_gateway import JavaClass, JavaPackage  # noqa: PLC0415

        found = getattr(self._found, name)
        is_package = isinstance(found, JavaPackage)
        if is_package or isinstance(found, JavaClass):
            found = JavaNames(found)
        if not is_package or name.islower():  # else a class that is not loaded yet
            setattr(self, name, found)
        return found

    def __call__(self, *arguments: Any) -> Any:  # noqa: ANN401
        """Make an object of a class."""
        return self._found(*arguments)


# ---- sessions


def import_pyspark() -> None:
    """Import PySpark without its warning about pandas, which we give it no frames of.

    It comes with ``pyspark.testing.utils``, which PySpark's first call of Java imports.
    """
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas")
        importlib.import_module("pyspark.testing.utils")


def state_size(session: Any, feed: str) -> tuple[int, int] | None:  # noqa: ANN401
    """The rows and bytes of the state of a dataflow; None when Java does not know them."""
    from py4j.protocol import Py4JError  # noqa: PLC0415

    try:
        size = jvm_of(session).millstream.dataflow.Dataflow.sizeOf(feed)
    except (Py4JError, OSError):  # Java may die at any moment
        return None
    return None if size is None else (int(size[0]), int(size[1]))


def jvm_of(session: Any) -> Any:  # noqa: ANN401 - a SparkSession, JavaNames
    """The Java classes of a session's process, by name (``SparkSession._jvm``).

    ``SparkContext._jvm`` is one for all contexts: of a session whose Java has died, another Java's.
    """
    jvm = session._jvm  # noqa: SLF001
    if "millstream_names" not in vars(jvm):
        jvm.millstream_names = JavaNames(jvm)
    return jvm.millstream_names


def class_name(found: Any) -> str:  # noqa: ANN401
    """The name of the class of an object in Java, without its package, by one call."""
    from py4j.java_gateway import JavaClass  # noqa: PLC0415

    client = found._gateway_client  # noqa: SLF001
    if "millstream_kind" not in vars(client):
        client.millstream_kind = JavaClass("millstream.dataflow.Plans", client).kind
    return str(client.millstream_kind(found))


def java_session(session: Any) -> Any:  # noqa: ANN401
    """The session's object in Java (``SparkSession._jsparkSession``)."""
    return session._jsparkSession  # noqa: SLF001


def cloned_session(session: Any, settings: Mapping[str, str]) -> Any:  # noqa: ANN401
    """A session of the same context with copies of another's settings, functions and relations.

    ``cloneSession`` in Java, and the second argument of PySpark's ``SparkSession``. The public
    ``newSession`` has none of the functions that the user has registered.

    Args:
        session: the other one.
        settings: more settings.
    """
    text = "\x1e".join(f"{name}\x1f{value}" for name, value in settings.items())
    made = jvm_of(session).millstream.bridge.Setup.session(java_session(session), text)
    return type(session)(session.sparkContext, made)


def load_jar(session: Any, jar: Path) -> None:  # noqa: ANN401
    """Load a jar in a driver that was started without it (``Utils.getContextOrSparkClassLoader``).

    ADD JAR would do for the session, but what tasks send back is read by the driver's own class
    loader.
    """
    jvm = jvm_of(session)
    loader = jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader()
    loader.addURL(jvm.java.io.File(str(jar)).toURI().toURL())


def send_jar(session: Any, jar: Path) -> None:  # noqa: ANN401
    """Send a jar to all executors (``SparkContext._jsc``).

    One that runs in the driver has its class loader, and would fetch the jar for nothing.
    """
    if not session.sparkContext._jsc.sc().isLocal():  # noqa: SLF001
        session.sparkContext._jsc.addJar(str(jar))  # noqa: SLF001


def active_context() -> Any:  # noqa: ANN401 - a SparkContext or None
    """The one SparkContext of this process, if any (``SparkContext._active_spark_context``)."""
    if "pyspark.core.context" not in sys.modules:
        return None
    from pyspark import SparkContext  # noqa: PLC0415 - heavy, and only for databases with views

    return SparkContext._active_spark_context  # noqa: SLF001


def forget_ended_context() -> None:
    """Have PySpark forget its SparkContext if Java has ended: the owner may not know yet."""
    context = active_context()
    gateway = None if context is None else context._gateway  # noqa: SLF001
    process = java_process(gateway)
    if process is not None and process.poll() is not None:
        forget_context(context)
        forget_java(gateway)


def active_session() -> Any:  # noqa: ANN401 - a SparkSession
    """A session of the one SparkContext of this process."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    return SparkSession.builder.getOrCreate()


# ---- queries


def frame_of(session: Any, java_frame: Any) -> Any:  # noqa: ANN401
    """A Dataset of Java as a DataFrame of a session (the constructor of ``classic.DataFrame``)."""
    from pyspark.sql.classic.dataframe import DataFrame  # noqa: PLC0415

    return DataFrame(java_frame, session)


def java_frame(frame: Any) -> Any:  # noqa: ANN401
    """The Dataset of a DataFrame (``DataFrame._jdf``)."""
    return frame._jdf  # noqa: SLF001


def java_writer(writer: Any) -> Any:  # noqa: ANN401
    """The object in Java of a DataStreamWriter (``DataStreamWriter._jwrite``)."""
    return writer._jwrite  # noqa: SLF001


def empty_frame(session: Any, columns: str) -> Any:  # noqa: ANN401
    """No rows of some columns, given as JSON, which Spark's optimizer knows to be none.

    ``DataType.fromJson`` and ``createDataFrame`` in Java: PySpark's own ``createDataFrame`` makes
    an RDD, of which the optimizer knows nothing.
    """
    jvm = jvm_of(session)
    schema = jvm.org.apache.spark.sql.types.DataType.fromJson(columns)
    rows = java_session(session).createDataFrame(jvm.java.util.ArrayList(), schema)
    return frame_of(session, rows)


def add_relation(session: Any, name: str, columns: str) -> int:  # noqa: ANN401
    """Add a relation of some columns, given as JSON, of which Spark's optimizer knows nothing else.

    A ``LogicalRDD`` of no rows, and ``CreateViewCommand``, which are no part of Spark's API.

    Returns:
        The id of its RDD, by which it is found in plans.
    """
    setup = jvm_of(session).millstream.bridge.Setup
    return int(setup.addRelation(java_session(session), name, columns))


def plan_merger(jvm: Any) -> Any:  # noqa: ANN401
    """What finds plans that compute the same rows (``execution.planmerging``): no filters of them.

    ``merge(plan, False)`` gives the index of what a plan was merged into, and, by its columns, the
    places of the same in that one.
    """
    return jvm.org.apache.spark.sql.execution.planmerging.PlanMerger(*[False] * 4)


def depends_on_clock(frame: Any) -> bool:  # noqa: ANN401
    """Whether a result depends on the time of day, by a function or by a text such as 'now'.

    Spark reads such a text where it is cast to a time, if only by ``ts < 'now'``. Catalyst's own
    rules that put the time of day in (``ComputeCurrentTime``, ``SpecialDatetimeValues``) change the
    plan if there is any.
    """
    rules = jvm_of(frame.sparkSession).org.apache.spark.sql.catalyst.optimizer
    plan = rules.ReplaceExpressions.apply(analyzed_plan(frame))
    clocks = (rules.SpecialDatetimeValues, rules.ComputeCurrentTime)
    return not all(rule.apply(plan).fastEquals(plan) for rule in clocks)


def implicit_casts(frame: Any) -> list[tuple[str, str]]:  # noqa: ANN401 - a DataFrame
    """The casts of text that Spark has inserted in a result's plan: types, and columns in the text.

    ``Cast.USER_SPECIFIED_CAST``, a tag of those that were written.
    """
    plans = jvm_of(frame.sparkSession).millstream.dataflow.Plans
    found = str(plans.implicitCasts(analyzed_plan(frame))).splitlines()
    return [(kind, column) for kind, _, column in (each.partition("\t") for each in found)]


def analyzed_plan(frame: Any) -> Any:  # noqa: ANN401
    """The analyzed logical plan of a result (``queryExecution``)."""
    return java_frame(frame).queryExecution().analyzed()


# ---- the Java process


MODULE_OPTIONS: Final = (
    "-XX:+IgnoreUnrecognizedVMOptions",
    *(
        f"--add-opens={each}=ALL-UNNAMED"
        for each in (
            "java.base/java.lang",
            "java.base/java.lang.invoke",
            "java.base/java.lang.reflect",
            "java.base/java.io",
            "java.base/java.net",
            "java.base/java.nio",
            "java.base/java.util",
            "java.base/java.util.concurrent",
            "java.base/java.util.concurrent.atomic",
            "java.base/jdk.internal.ref",
            "java.base/sun.nio.ch",
            "java.base/sun.nio.cs",
            "java.base/sun.security.action",
            "java.base/sun.util.calendar",
            "java.security.jgss/sun.security.krb5",
        )
    ),
    "-Dio.netty.tryReflectionSetAccessible=true",
    "-Dio.netty.allocator.type=pooled",
    "-Dio.netty.handler.ssl.defaultEndpointVerificationAlgorithm=NONE",
    "--sun-misc-unsafe-memory-access=allow",
    "--enable-native-access=ALL-UNNAMED",
)
"""What Spark's code needs of any Java (``launcher.JavaModuleOptions``).

Less the module ``jdk.incubator.vector``: only linear algebra in MLlib makes use of it, not every
Java has it, and a Java that loads it cannot map its modules from an archive.
"""

_CONNECTION: Final = "connection"

_IMPORTED: Final = (
    "org.apache.spark.SparkConf",
    "org.apache.spark.api.java.*",
    "org.apache.spark.api.python.*",
    "org.apache.spark.ml.python.*",
    "org.apache.spark.mllib.api.python.*",
    "org.apache.spark.resource.*",
    "org.apache.spark.sql.Encoders",
    "org.apache.spark.sql.OnSuccessCall",
    "org.apache.spark.sql.functions",
    "org.apache.spark.sql.classic.*",
    "org.apache.spark.sql.api.python.*",
    "org.apache.spark.sql.hive.*",
    "scala.Tuple2",
)
"""The names of Java that PySpark uses without their packages (``java_gateway.launch_gateway``)."""


def spark_home() -> Path:
    """The folder of Spark's distribution: SPARK_HOME, or the package, which is not imported yet.

    As ``pyspark.find_spark_home`` finds it, whose import takes a second.
    """
    if home := os.environ.get("SPARK_HOME"):
        return Path(home)
    package = importlib.util.find_spec("pyspark")
    if package is None or not package.submodule_search_locations:
        raise PipelineError("there is no PySpark", hint="pip install 'pyspark==4.3.*'")
    return Path(package.submodule_search_locations[0])


def spark_jars() -> Path:
    """The folder of the jars that Java is started with."""
    return spark_home() / "jars"


def connection_variables(folder: Path) -> dict[str, str]:
    """Variables by which Java writes to a folder how to connect to it (``PythonGatewayServer``)."""
    return {
        "_PYSPARK_DRIVER_CONN_INFO_PATH": str(folder / _CONNECTION),
        "PYSPARK_PIN_THREAD": "true",
        "SPARK_CONNECT_MODE": "0",
    }


def has_connection(folder: Path) -> bool:
    """Whether Java has written how to connect to it."""
    return (folder / _CONNECTION).exists()


def connect(folder: Path, process: subprocess.Popen[bytes]) -> Any:  # noqa: ANN401
    """Connect to a Java by what it has written; gives a gateway like PySpark's own.

    The second half of ``pyspark.java_gateway.launch_gateway``.
    """
    from py4j.clientserver import ClientServer, JavaParameters, PythonParameters  # noqa: PLC0415
    from py4j.java_gateway import java_import  # noqa: PLC0415

    written = (folder / _CONNECTION).read_bytes()
    port, size = struct.unpack_from(">ii", written)
    secret = written[8 : 8 + size].decode()
    gateway = ClientServer(
        java_parameters=JavaParameters(port=port, auth_token=secret, auto_convert=True),
        python_parameters=PythonParameters(port=0, eager_load=False),
    )
    gateway.proc = process
    client = gateway._gateway_client  # noqa: SLF001
    client.send_command = partial(_send_command, client)
    for name in _IMPORTED:
        java_import(gateway.jvm, name)
    return gateway


def gateway_of(session: Any) -> Any:  # noqa: ANN401 - a JavaGateway or None
    """The gateway to a session's Java; None when that has died, and others have started it.

    ``SparkContext._gateway`` is one for all contexts; the session's is that of its ``_jvm``.
    """
    client = session._jvm._gateway_client  # noqa: SLF001
    if "millstream_gateway" not in vars(client):
        gateway = session.sparkContext._gateway  # noqa: SLF001
        if gateway is None or gateway._gateway_client is not client:  # noqa: SLF001
            return None
        client.millstream_gateway = gateway
    return client.millstream_gateway


def conf_of(gateway: Any) -> Any:  # noqa: ANN401 - a JavaGateway, a SparkConf
    """The settings that Java was started with, as PySpark's, without asking for each."""
    from pyspark import SparkConf  # noqa: PLC0415

    return SparkConf(_jvm=gateway.jvm)


def java_process(gateway: Any) -> subprocess.Popen[bytes] | None:  # noqa: ANN401
    """The process of a gateway's Java (``gateway.proc``); None when something else started it."""
    return getattr(gateway, "proc", None)


def forget_java(gateway: Any) -> None:  # noqa: ANN401 - a JavaGateway
    """Have PySpark start a new Java for the next context; it would keep one that has ended.

    ``SparkContext._gateway`` and ``_jvm``, both of the class. Another gateway stays: the last
    reference to it would end its Java.
    """
    from pyspark import SparkContext  # noqa: PLC0415

    if SparkContext._gateway is gateway:  # noqa: SLF001
        SparkContext._gateway = SparkContext._jvm = None  # noqa: SLF001


def forget_context(context: Any = None) -> None:  # noqa: ANN401 - a SparkContext
    """Have PySpark make a new context and session; it would hold on to those of a dead Java.

    ``SparkContext._active_spark_context`` and ``SparkSession._instantiatedSession``. Another
    context than the given one stays: it is another database's new one.
    """
    from pyspark import SparkContext  # noqa: PLC0415
    from pyspark.sql import SparkSession  # noqa: PLC0415

    if context is None or active_context() is context:
        SparkContext._active_spark_context = None  # noqa: SLF001
        SparkSession._instantiatedSession = None  # noqa: SLF001


def is_disconnected(raised: BaseException | None) -> bool:
    """Whether an error, or what has led to it, is that Java does not answer any more.

    ``Py4JError``: that of a call which Java has answered with an error is ``Py4JJavaError``.
    """
    from py4j.protocol import Py4JError, Py4JJavaError  # noqa: PLC0415

    while raised is not None:
        if isinstance(raised, ConnectionError | EOFError):
            return True
        if isinstance(raised, Py4JError) and not isinstance(raised, Py4JJavaError):
            return True
        raised = raised.__cause__ or raised.__context__
    return False


def is_stopped(session: Any) -> bool:  # noqa: ANN401 - a SparkSession
    """Whether its context has ended in Java, such as when a cluster has removed the application.

    ``SparkContext._jsc``: PySpark itself knows only of those that it has ended.
    """
    context = session.sparkContext
    if "millstream_sc" not in vars(context):
        context.millstream_sc = context._jsc.sc()  # noqa: SLF001
    return bool(context.millstream_sc.isStopped())


def _send_command(client: Any, command: str, retry: bool = True, binary: bool = False) -> Any:  # noqa: ANN401
    """``GatewayClient.send_command`` of py4j, for a Java of our own, without its log lines.

    py4j writes broken connections and interrupted calls to the *root* logger, and by that to the
    terminal of a process that has not set up logging. Both are raised here as well.
    """
    from py4j import protocol  # noqa: PLC0415

    connection = client._get_connection()  # noqa: SLF001
    try:
        response = connection.send_command(command)
    except protocol.Py4JNetworkError as error:
        connection.close(isinstance(error.cause, TimeoutError))
        if not client._should_retry(retry, connection, error):  # noqa: SLF001
            return protocol.ERROR
        return _send_command(client, command, retry=False, binary=binary)
    except KeyboardInterrupt:
        _end_interrupted(connection)
        raise
    if binary:
        return response, client._create_connection_guard(connection)  # noqa: SLF001
    if protocol.is_fatal_error(response):
        connection.close(reset=False)
    else:
        client._give_back_connection(connection)  # noqa: SLF001
    return response


def _end_interrupted(connection: Any) -> None:  # noqa: ANN401 - a ClientServerConnection
    """End a connection whose answer nobody reads, on Java's side as well."""
    if connection.socket is not None:
        ours, theirs = connection.socket.getsockname(), connection.socket.getpeername()
        connection.shutdown_socket(ours[1], theirs[1])
