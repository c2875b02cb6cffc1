"""The error tree: one root, classes named for the situation, each with a code and a hint.

Catch the class that you need: ``millstream.Error`` for every error, ``LogError`` for errors of the
log and the disk, ``LogFullError`` for a full disk. ``str(error)`` is the message and the hint.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

from millstream.masking import without_secrets


class Error(Exception):
    """The root of all errors that Millstream raises.

    Attributes:
        code: a stable name for programs, such as ``"LOG_LOCKED"``.
        hint: what to do about the error; may be empty.
    """

    code: ClassVar[str] = "ERROR"

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}\n  hint: {self.hint}" if self.hint else self.message

    def again(self) -> Self:
        """A copy to raise once more, elsewhere: each raise adds to an error's traceback."""
        fresh = _restore(type(self), self.args, dict(self.__dict__))
        fresh.__cause__ = self.__cause__
        return cast("Self", fresh)

    def for_tenants(self) -> Error:
        """A copy that a tenant may see: without values of other tenants' rows."""
        return self.again()

    def __reduce__(self) -> tuple[Any, ...]:
        """Errors cross process borders with all they carry."""
        return _restore, (type(self), self.args, self.__dict__)


def _restore(kind: type[Error], args: tuple[Any, ...], attributes: dict[str, Any]) -> Error:
    error = kind.__new__(kind)
    error.args = args
    error.__dict__.update(attributes)
    return error


class ClosedError(Error):
    """The object was closed, or belongs to another process after a fork."""

    code = "CLOSED"


class ReceiveTimeoutError(Error, TimeoutError):
    """Nothing arrived within the timeout. Also a ``TimeoutError`` of Python."""

    code = "RECEIVE_TIMEOUT"


class InvalidNameError(Error):
    """A name is empty, too long, or has characters that names may not have."""

    code = "INVALID_NAME"


class InvalidOptionError(Error):
    """An option has an invalid value."""

    code = "INVALID_OPTION"


class SchemaError(Error):
    """A schema is invalid: two columns of one name, an unknown type, a key without a column."""

    code = "INVALID_SCHEMA"


class SchemaMismatchError(Error):
    """The columns or types of data do not match the schema."""

    code = "SCHEMA_MISMATCH"


class RowError(SchemaMismatchError):
    """A value does not fit its column; no row of its batch was stored.

    Attributes:
        row: the position of the row in its batch, from 0.
        column: the name of the column, or None if the row as a whole is invalid.
    """

    code = "BAD_ROW"

    def __init__(self, message: str, *, row: int, column: str | None, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.row = row
        self.column = column

    def at(self, row: int) -> RowError:
        """A copy that names another row: its place in all that was given, not in a part of it."""
        message = self.message.replace(f"row {self.row}", f"row {row}", 1)
        return RowError(message, row=row, column=self.column, hint=self.hint)


class ColumnNotFoundError(SchemaMismatchError, KeyError):
    """The schema does not have this column. Also a ``KeyError`` of Python."""

    code = "COLUMN_NOT_FOUND"

    def __str__(self) -> str:
        return Error.__str__(self)


class TimeRangeError(Error):
    """A time does not fit into 64-bit microseconds since 1970, or into Python's datetime."""

    code = "TIME_RANGE"


class TokenError(Error):
    """A resume token cannot be used here."""

    code = "TOKEN"


class InvalidTokenError(TokenError):
    """The text is not a resume token, is damaged, or comes from a newer version."""

    code = "TOKEN_INVALID"


class ForeignTokenError(TokenError):
    """The resume token was issued by another database."""

    code = "TOKEN_FOREIGN"


class TopicExistsError(Error):
    """A topic of that name exists already."""

    code = "TOPIC_EXISTS"


class TopicNotFoundError(Error):
    """There is no topic of that name."""

    code = "TOPIC_NOT_FOUND"


class LogError(Error):
    """The root of errors of the log and its directory.

    Attributes:
        rows_lost: of ``close``: number of async rows that are not in the log.
    """

    code = "LOG"
    rows_lost: int = 0

    def with_lost(self, rows: int) -> Self:
        """A copy that says how many rows are lost by it."""
        error = self.again()
        if rows:
            many = "1 row that was" if rows == 1 else f"{rows:,} rows that were"
            error.message = f"{many} pushed could not be written: {self.message}"
            error.rows_lost, error.__cause__ = rows, self
        return error


class LogLockedError(LogError):
    """Another process, or another handle in this process, has the directory open."""

    code = "LOG_LOCKED"


class LogPathError(LogError):
    """The path is not a directory, or a file in it cannot be read."""

    code = "LOG_PATH"


class LogReadOnlyError(LogError):
    """The directory cannot be written to."""

    code = "LOG_READ_ONLY"


class LogFullError(LogError):
    """The disk is full. Acknowledged rows are safe; the call that raised this wrote nothing."""

    code = "LOG_FULL"


class LogFailedError(LogError):
    """The disk failed to store accepted data. Open the database again to write to the log."""

    code = "LOG_FAILED"


class LogVersionError(LogError):
    """The log was written by a newer Millstream."""

    code = "LOG_VERSION"


class LogFilesError(LogError):
    """Segments of the log are missing from the directory, or wrong ones are in their place.

    Attributes:
        files: the names of the wrong files.
        missing: the ordinals of the missing segments.
    """

    code = "LOG_FILES"

    def __init__(
        self, message: str, *, files: tuple[str, ...], missing: tuple[int, ...], hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.files = files
        self.missing = missing


class LogCorruptError(LogError):
    """A written part of the log is damaged or missing.

    Attributes:
        segment: the name of the file.
        offset: the offset of the damage in the file.
        next_lsn: the first readable LSN after the damage, or None if there is none.
        count: number of rows that the reader has lost; None if it is not known.
    """

    code = "LOG_CORRUPT"

    def __init__(
        self, message: str, *, segment: str, offset: int, next_lsn: int | None, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.segment = segment
        self.offset = offset
        self.next_lsn = next_lsn
        self.count: int | None = None


class LsnNotKeptError(LogError):
    """The requested LSN is older than what retention has kept.

    Attributes:
        oldest: the oldest LSN that can still be read.
    """

    code = "LSN_NOT_KEPT"

    def __init__(self, message: str, *, oldest: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.oldest = oldest


class RowsLostError(LogError):
    """Async rows could not be written, and are not in the log."""

    code = "ROWS_LOST"


class RowTooLargeError(LogError):
    """A single row is larger than a frame of the log may be."""

    code = "ROW_TOO_LARGE"


class SqlError(Error):
    """A statement is refused. The error says where, why, and what to write instead.

    Attributes:
        sql: the text of the statements, with passwords masked.
        line: the line of the error, from 1; 0 if the error has no single place.
        column: the column of the error, from 1.
    """

    code = "SQL"

    def __init__(
        self, message: str, *, sql: str = "", line: int = 0, column: int = 0, hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.sql = without_secrets(sql)
        self.line = line
        self.column = column

    def __str__(self) -> str:
        lines = self.sql.splitlines()
        if not 0 < self.line <= len(lines):
            return super().__str__()
        head = f"line {self.line}, column {self.column}: {self.message}"
        shown, place = _excerpt(lines[self.line - 1], self.column)
        hint = f"\n  hint: {self.hint}" if self.hint else ""
        return f"{head}\n  {shown}\n  {' ' * place}^{hint}"


def _excerpt(line: str, column: int, width: int = 96) -> tuple[str, int]:
    """The part of a line around a column, and the place of the column in it."""
    place = min(max(column - 1, 0), len(line))
    begin = max(0, place - width // 2) if len(line) > width else 0
    return line[begin : begin + width].replace("\t", " "), place - begin


class SqlSyntaxError(SqlError):
    """The text cannot be parsed as a statement."""

    code = "SQL_SYNTAX"


class SqlUnsupportedError(SqlError):
    """The statement is well formed, but cannot be answered exactly, or not yet."""

    code = "SQL_UNSUPPORTED"


class SqlColumnError(SqlError):
    """A column or a function does not exist."""

    code = "SQL_COLUMN"


class SqlTypeError(SqlError):
    """Types that cannot be compared, combined or converted."""

    code = "SQL_TYPE"


class SqlParameterError(SqlError):
    """A parameter has no value, a value has no parameter, or a parameter is at a wrong place."""

    code = "SQL_PARAMETER"


class SqlOptionError(SqlError):
    """An option in WITH (...) is unknown, or has an invalid value."""

    code = "SQL_OPTION"


class ExpressionError(Error):
    """An expression has no value for a row: a division by zero, an overflow."""

    code = "EXPRESSION"


class BrokenDefinitionError(Error):
    """The stored definition of a source or a table cannot be read. It can be shown and dropped."""

    code = "BROKEN_DEFINITION"


class ObjectNotFoundError(Error):
    """No source, table or view has this name."""

    code = "OBJECT_NOT_FOUND"


class ObjectExistsError(Error):
    """The name is already in use."""

    code = "OBJECT_EXISTS"


class WrongObjectError(Error):
    """The object has another kind than the statement needs."""

    code = "WRONG_OBJECT"


class DuplicateKeyError(Error):
    """A row with this primary key exists already; the statement changed nothing.

    Attributes:
        key: the values of the key's columns.
        table: its name; empty if it is not known.
        columns: the names of the key's columns.
    """

    code = "DUPLICATE_KEY"

    def __init__(
        self,
        message: str,
        *,
        key: tuple[Any, ...],
        table: str = "",
        columns: tuple[str, ...] = (),
        hint: str = "",
    ) -> None:
        super().__init__(message, hint=hint)
        self.key = key
        self.table = table
        self.columns = columns


class TenantError(Error):
    """A tenant may not read or write this, or a relation has no tenant column."""

    code = "TENANT"


class SourceFullError(Error):
    """The source's buffer is full and its policy is ``reject``; the row was not stored."""

    code = "SOURCE_FULL"


class SubscriptionError(Error):
    """The root of errors of subscriptions."""

    code = "SUBSCRIPTION"


class SlowConsumerError(SubscriptionError):
    """The reader was too slow, and its policy is ``disconnect``.

    Attributes:
        token: the token with which a new subscription continues without a gap.
    """

    code = "SLOW_CONSUMER"

    def __init__(self, message: str, *, token: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.token = token


class SubscriptionNotFoundError(SubscriptionError):
    """No durable subscription has this name."""

    code = "SUBSCRIPTION_NOT_FOUND"


class SubscriptionExistsError(SubscriptionError):
    """The name belongs to an open subscription, or to a subscription for another query."""

    code = "SUBSCRIPTION_EXISTS"


class SubscriptionEndedError(SubscriptionError):
    """The relation was dropped or replaced, or the query failed on a row."""

    code = "SUBSCRIPTION_ENDED"


class PipelineError(Error):
    """Spark cannot be started, does not answer, or has no free task slot."""

    code = "PIPELINE"


class JavaNotFoundError(PipelineError):
    """No Java was found that Spark can run on; the hint says how to get one."""

    code = "JAVA_NOT_FOUND"


class SparkStartError(PipelineError):
    """Spark's Java did not start, or ended before Spark was ready."""

    code = "SPARK_START"


class JavaDiedError(PipelineError):
    """Spark's Java died while it was in use. Views continue in a new one by themselves."""

    code = "JAVA_DIED"


class ViewFailedError(Error):
    """A view's query cannot continue; the view keeps its last rows.

    Attributes:
        view: the name of the view.
        topic: the relation with the row that the query has no value for; None: not known.
        lsn: the LSN of that row, or of its commit; None: not known.
        key: the values of that row's key columns; None: not known, or the relation has no key.
    """

    code = "VIEW_FAILED"

    def __init__(
        self,
        message: str,
        *,
        view: str,
        hint: str = "",
        topic: str | None = None,
        lsn: int | None = None,
        key: tuple[Any, ...] | None = None,
    ) -> None:
        super().__init__(message, hint=hint)
        self.view = view
        self.topic = topic
        self.lsn = lsn
        self.key = key

    def for_tenants(self) -> Error:
        """A copy without the row that it failed on; of a tenant's own query, with the reason."""
        if self.view.startswith("__"):
            return self.again()
        return ViewFailedError(
            f"the view {self.view} failed",
            view=self.view,
            hint="it reads rows of all tenants; SHOW VIEWS, without a tenant, says why",
        )


class ViewNotReadyError(Error):
    """A view has not caught up within the timeout."""

    code = "VIEW_NOT_READY"


class InUseError(Error):
    """An object cannot be dropped or replaced while another object reads it."""

    code = "IN_USE"


class ObjectChangedError(Error):
    """An object was dropped, replaced or altered after the statement was planned."""

    code = "OBJECT_CHANGED"


class DdlTimeoutError(Error):
    """A DDL statement has waited too long for another DDL statement."""

    code = "DDL_TIMEOUT"


class MissingExtraError(Error):
    """An optional package is not installed; the hint says how to install it."""

    code = "MISSING_EXTRA"


class ConnectorError(Error):
    """A connector and its other system have a problem. The connector tries again, with pauses."""

    code = "CONNECTOR"


class ConnectorFailedError(ConnectorError):
    """Retrying a connector would not help: wrong options, a lost slot, incompatible data.

    The connector stops. Fix the cause, then run ``ALTER SOURCE s RESUME``.
    """

    code = "CONNECTOR_FAILED"


class FileAccessError(Error):
    """A file or an object store cannot be read or written."""

    code = "FILE"


class FileRefusedError(FileAccessError):
    """A file is outside the directories that the server gives access to."""

    code = "FILE_REFUSED"


class FileFormatError(FileAccessError):
    """A file is damaged, incomplete, or of another format than expected."""

    code = "FILE_FORMAT"


class ServerError(Error):
    """The root of errors of a server and its clients."""

    code = "SERVER"


class DisconnectedError(ServerError):
    """The server cannot be reached, or the connection broke before its answer came."""

    code = "DISCONNECTED"


class AuthenticationError(ServerError):
    """The API key is missing, or unknown to the server."""

    code = "UNAUTHENTICATED"


class RoleError(ServerError):
    """The role of the key or session does not allow this."""

    code = "ROLE"


class AddressRefusedError(ServerError):
    """A tenant's webhook may not reach this address."""

    code = "ADDRESS_REFUSED"


class LimitError(ServerError):
    """A limit of the server is exceeded: size of a body, connections, subscriptions."""

    code = "LIMIT"


class TooLargeError(LimitError):
    """A body or a message is larger than the server accepts."""

    code = "TOO_LARGE"


class OriginError(ServerError):
    """The request comes from a web page of another site, or names an unknown host."""

    code = "ORIGIN"


class QueryTimeoutError(ServerError):
    """The statement took longer than the server allows."""

    code = "QUERY_TIMEOUT"


class RequestError(ServerError):
    """The request is not well formed."""

    code = "BAD_REQUEST"


class MediaTypeError(RequestError):
    """The server does not read the format of the body."""

    code = "MEDIA_TYPE"


class KeyFileError(ServerError):
    """The file of the API keys cannot be read."""

    code = "KEY_FILE"
