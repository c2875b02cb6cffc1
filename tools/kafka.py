"""Apache Kafka, which the tests of its connectors run: found in `.cache`, or resolved by Maven.

Run by the Makefile before the tests. Needs nothing but Python itself and Java; Maven is installed
where that can be done. `Broker` starts one, for the tests and the benchmarks.
"""

from __future__ import annotations

import base64
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from debian import install

VERSION = "4.1.0"
CACHE = Path(__file__).resolve().parents[1] / ".cache" / "kafka"
HOW = (
    "Apache Kafka is needed for the tests of its connectors, and is resolved by Maven: "
    "apt-get install maven (Debian, Ubuntu), brew install maven (macOS); then make kafka"
)
BROKER = (f"org.apache.kafka:kafka_2.13:{VERSION}", "org.slf4j:slf4j-simple:1.7.36")
# For benchmarks: Spark's own source of Kafka. There is none of Spark 4.3 on Maven Central, and its
# helper for delegation tokens, which nothing here uses, is there of 4.0 only. These run on 4.3.
SPARK_SOURCE = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.1",
    "org.apache.commons:commons-pool2:2.12.1",
)
_POM = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>millstream</groupId><artifactId>for-tests</artifactId><version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_ALONE = (
    "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"
)
_SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port},SASL://127.0.0.1:{sasl}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,SASL:SASL_SSL,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
sasl.enabled.mechanisms=PLAIN
listener.name.sasl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule \
required user_reader="right";
ssl.keystore.type=PKCS12
ssl.keystore.location={folder}/keys.p12
ssl.keystore.password=of-a-test
log.dirs={folder}/data
num.partitions=1
offsets.topic.num.partitions=1
offsets.topic.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
log.cleaner.dedupe.buffer.size=2097152
num.network.threads=2
num.io.threads=2
log.flush.interval.messages=9223372036854775807
"""


def folder() -> Path:
    """Where its jars are, when they are there."""
    return CACHE / VERSION


def is_there() -> bool:
    """Whether it can be started."""
    return folder().is_dir()


def resolve(artifacts: tuple[str, ...], target: Path, *, alone: bool = False) -> bool:
    """Whether Maven could put some artifacts into a folder, all or nothing.

    Args:
        artifacts: as ``group:name:version``.
        target: the folder.
        alone: without what they depend on.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as made:
        pom = _POM.format(dependencies="".join(_dependency(each, alone) for each in artifacts))
        Path(made, "pom.xml").write_text(pom, encoding="utf-8")
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        command.append(f"-DoutputDirectory={made}/jars")
        if subprocess.run(command, cwd=made, check=False).returncode:
            return False
        os.replace(Path(made, "jars"), target)
    return True


def _dependency(artifact: str, alone: bool) -> str:
    group, name, version = artifact.split(":")
    what = f"<groupId>{group}</groupId><artifactId>{name}</artifactId><version>{version}</version>"
    return f"<dependency>{what}{_ALONE if alone else ''}</dependency>"


def spark_source() -> list[str]:
    """The jars of Spark's own source of Kafka, resolved the first time; none if they cannot be."""
    there = CACHE / "spark"
    if not there.is_dir() and not (
        shutil.which("mvn") and resolve(SPARK_SOURCE, there, alone=True)
    ):
        return []
    return sorted(map(str, there.glob("*.jar")))


def main() -> None:
    """Find it, or resolve it, or say how."""
    if is_there():
        return
    if shutil.which("mvn") is None and not (install("Maven", ("maven",)) and shutil.which("mvn")):
        sys.exit(HOW)
    print(f"resolving Apache Kafka {VERSION} ...", flush=True)
    if not resolve(BROKER, folder()):
        sys.exit(HOW)


class Broker:
    """A broker of its own, alone in KRaft mode, on free ports of the loopback device.

    Args:
        folder: for its data, its settings and what it says.
        settings: more lines of its settings.

    Attributes:
        address: of the listener without authentication.
        sasl_address: of the one that asks for TLS and SASL PLAIN: ``reader``, ``right``.
        certificate: what its TLS is to be trusted by.
    """

    def __init__(self, folder: Path, settings: str = "") -> None:
        self._folder = folder
        port, sasl, controller = _free_ports(3)
        self.address = f"127.0.0.1:{port}"
        self.sasl_address = f"127.0.0.1:{sasl}"
        self._process: subprocess.Popen[bytes] | None = None
        text = _SETTINGS.format(port=port, sasl=sasl, controller=controller, folder=folder)
        self._settings = folder / "server.properties"
        self._settings.write_text(text + settings, encoding="utf-8")
        self.certificate = folder / "certificate.pem"
        self._make_keys()
        made = self._java("kafka.tools.StorageTool", "format", "-t", _cluster_id(), "-c")
        with (folder / "format.log").open("wb") as said:
            subprocess.run(made, check=True, stdout=said, stderr=subprocess.STDOUT)

    def _make_keys(self) -> None:
        store = ["-keystore", str(self._folder / "keys.p12"), "-storepass", "of-a-test"]
        store += ["-alias", "broker"]
        pair = ["-genkeypair", "-storetype", "PKCS12", "-keyalg", "EC", "-validity", "30"]
        pair += ["-dname", "CN=localhost", "-ext", "SAN=IP:127.0.0.1"]
        shown = ["-exportcert", "-rfc", "-file", str(self.certificate)]
        for command in (pair, shown):
            subprocess.run([_of_java("keytool"), *command, *store], check=True, capture_output=True)

    def start(self) -> None:
        """Start it, and wait until it answers."""
        with (self._folder / "broker.log").open("ab") as said:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka"), stdout=said, stderr=subprocess.STDOUT
            )
        host, _, port = self.address.partition(":")
        deadline = time.monotonic() + 120
        while not _accepts(host, int(port)):
            if self._process.poll() is not None or time.monotonic() > deadline:
                self.kill()
                said_text = (self._folder / "broker.log").read_text(errors="replace")
                raise RuntimeError(f"Kafka did not start: {said_text[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> None:
        """Let it end in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(number)
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def _java(self, main_class: str, *arguments: str) -> list[str]:
        flags = ["-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        flags.append("-Dorg.slf4j.simpleLogger.defaultLogLevel=warn")
        jars = os.path.join(folder(), "*")
        return [_of_java("java"), *flags, "-cp", jars, main_class, *arguments, str(self._settings)]


def _of_java(name: str) -> str:
    home = os.environ.get("JAVA_HOME")
    return os.path.join(home, "bin", name) if home else name


def _free_ports(count: int) -> list[int]:
    held = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in held]
    finally:
        for each in held:
            each.close()


def _accepts(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), 1).close()
    except OSError:
        return False
    return True


def _cluster_id() -> str:
    """A new one: a UUID in base64, which must not begin with a dash."""
    return base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode().replace("-", "A")


if __name__ == "__main__":
    main()
