"""The error tree: one root, classes named for the situation, each with a code and a hint.

Catch at the height you need: ``millstream.Error`` for everything, ``LogError`` for all that the
disk can do to you, ``LogFullError`` for a full disk. ``str(error)`` is the message and the hint.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self, cast

from millstream.masking import without_secrets


class Error(Exception):
    """The root of all errors that Millstream raises.

    Attributes:
        code: a stable name for programs, such as ``"LOG_LOCKED"``.
        hint: what to do about it, for people; may be empty.
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
    """Nothing came within the timeout. It is Python's ``TimeoutError``, too."""

    code = "RECEIVE_TIMEOUT"


class InvalidNameError(Error):
    """A name that is empty, too long, or has characters that names may not have."""

    code = "INVALID_NAME"


class InvalidOptionError(Error):
    """An option with a value that it cannot have."""

    code = "INVALID_OPTION"


class SchemaError(Error):
    """A schema that cannot be: two columns of one name, an unknown type, a key of no column."""

    code = "INVALID_SCHEMA"


class SchemaMismatchError(Error):
    """Data whose columns or types are not those of the schema it was given for."""

    code = "SCHEMA_MISMATCH"


class RowError(SchemaMismatchError):
    """One value that does not fit its column; nothing of its batch was taken.

    Attributes:
        row: the place of the row in its batch, from 0.
        column: the name of the column, or None when the row as a whole is wrong.
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
    """A column that the schema does not have; a KeyError, too, as for a dict."""

    code = "COLUMN_NOT_FOUND"

    def __str__(self) -> str:
        return Error.__str__(self)


class TimeRangeError(Error):
    """A time that microseconds since 1970 in 64 bits, or Python's datetime, cannot hold."""

    code = "TIME_RANGE"


class TokenError(Error):
    """A resume token that cannot be used here."""

    code = "TOKEN"


class InvalidTokenError(TokenError):
    """Not a resume token, a damaged one, or one of a newer version."""

    code = "TOKEN_INVALID"


class ForeignTokenError(TokenError):
    """A resume token that another database issued."""

    code = "TOKEN_FOREIGN"


class TopicExistsError(Error):
    """A topic of that name exists already."""

    code = "TOPIC_EXISTS"


class TopicNotFoundError(Error):
    """There is no topic of that name."""

    code = "TOPIC_NOT_FOUND"


class LogError(Error):
    """The root of what can go wrong between the log and its directory.

    Attributes:
        rows_lost: of ``close``: how many rows that were pushed without waiting are not in the log.
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
    """Another process, or another handle of this one, has the directory open."""

    code = "LOG_LOCKED"


class LogPathError(LogError):
    """The path is not a directory, or a file in it cannot be read."""

    code = "LOG_PATH"


class LogReadOnlyError(LogError):
    """The directory cannot be written to."""

    code = "LOG_READ_ONLY"


class LogFullError(LogError):
    """The disk is full. What was acknowledged is safe; what raised this was not written."""

    code = "LOG_FULL"


class LogFailedError(LogError):
    """The disk failed to keep what it had taken; the log takes no more until it is opened anew."""

    code = "LOG_FAILED"


class LogVersionError(LogError):
    """The log was written by a newer Millstream."""

    code = "LOG_VERSION"


class LogFilesError(LogError):
    """The directory does not hold the segments it should: some are missing, or others.

    Attributes:
        files: the names of the files that do not belong where they are.
        missing: the ordinals of the segments that are missing.
    """

    code = "LOG_FILES"

    def __init__(
        self, message: str, *, files: tuple[str, ...], missing: tuple[int, ...], hint: str = ""
    ) -> None:
        super().__init__(message, hint=hint)
        self.files = files
        self.missing = missing


class LogCorruptError(LogError):
    """A part of the log that was written is damaged or missing.

    Attributes:
        segment: the name of the file.
        offset: where in it the damage was met.
        next_lsn: the first LSN after the damage that can be read, or None when none can.
        count: how many rows of the reader it cost; None when that is not known.
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
    """The LSN asked for is older than what retention has kept.

    Attributes:
        oldest: the oldest LSN that can still be read.
    """

    code = "LSN_NOT_KEPT"

    def __init__(self, message: str, *, oldest: int, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.oldest = oldest


class RowsLostError(LogError):
    """Rows that were taken without waiting could not be written, and are not in the log."""

    code = "ROWS_LOST"


class RowTooLargeError(LogError):
    """One row alone is larger than a frame may be."""

    code = "ROW_TOO_LARGE"


class SqlError(Error):
    """A statement that is refused: where, why, and what to write instead.

    Attributes:
        sql: the text that was given; passwords in it are stars.
        line: the line of the place in question, from 1; 0 when there is no single place.
        column: its column, from 1.
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
    """Text that cannot be parsed as a statement."""

    code = "SQL_SYNTAX"


class SqlUnsupportedError(SqlError):
    """A statement that is well formed, but that cannot be answered exactly, or not yet."""

    code = "SQL_UNSUPPORTED"


class SqlColumnError(SqlError):
    """A column or a function that does not exist."""

    code = "SQL_COLUMN"


class SqlTypeError(SqlError):
    """Types that cannot be compared, combined or converted."""

    code = "SQL_TYPE"


class SqlParameterError(SqlError):
    """A parameter without a value, a value without a parameter, or one that cannot stand there."""

    code = "SQL_PARAMETER"


class SqlOptionError(SqlError):
    """An unknown option in WITH (...), or a value that an option cannot have."""

    code = "SQL_OPTION"


class ExpressionError(Error):
    """An expression that has no value for some row: a division by zero, a number too large."""

    code = "EXPRESSION"


class BrokenDefinitionError(Error):
    """What was stored of a source or a table cannot be read; it can be shown and dropped."""

    code = "BROKEN_DEFINITION"


class ObjectNotFoundError(Error):
    """There is no source, table or view of that name."""

    code = "OBJECT_NOT_FOUND"


class ObjectExistsError(Error):
    """The name is taken."""

    code = "OBJECT_EXISTS"


class WrongObjectError(Error):
    """The object is of another kind than the statement needs."""

    code = "WRONG_OBJECT"


class DuplicateKeyError(Error):
    """A row with that primary key is there already; nothing of the statement was done.

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
    """A tenant asked for, or wrote, what is not its own."""

    code = "TENANT"


class SourceFullError(Error):
    """The source's buffer is full and its policy is ``reject``; the row was not taken."""

    code = "SOURCE_FULL"


class SubscriptionError(Error):
    """The root of what can happen to a subscription."""

    code = "SUBSCRIPTION"


class SlowConsumerError(SubscriptionError):
    """The reader was too slow, and its policy is ``disconnect``.

    Attributes:
        token: from where a new subscription goes on without a gap.
    """

    code = "SLOW_CONSUMER"

    def __init__(self, message: str, *, token: str, hint: str = "") -> None:
        super().__init__(message, hint=hint)
        self.token = token


class SubscriptionNotFoundError(SubscriptionError):
    """There is no durable subscription of that name."""

    code = "SUBSCRIPTION_NOT_FOUND"


class SubscriptionExistsError(SubscriptionError):
    """The name belongs to a subscription that is open, or that is for another query."""

    code = "SUBSCRIPTION_EXISTS"


class SubscriptionEndedError(SubscriptionError):
    """What the subscription reads was dropped, or its query failed on a row."""

    code = "SUBSCRIPTION_ENDED"


class PipelineError(Error):
    """Spark could not be started, or does not answer."""

    code = "PIPELINE"


class JavaNotFoundError(PipelineError):
    """There is no Java that Spark can run on; the hint says how to get one."""

    code = "JAVA_NOT_FOUND"


class SparkStartError(PipelineError):
    """Spark's Java did not start, or ended before Spark was ready."""

    code = "SPARK_START"


class JavaDiedError(PipelineError):
    """Spark's Java has ended while it was in use; the views go on in a new one by themselves."""

    code = "JAVA_DIED"


class ViewFailedError(Error):
    """A view's query cannot go on; its rows are those from before.

    Attributes:
        view: the name of the view.
        topic: the log with the row that the query has no value for; None: not known.
        lsn: the LSN of that row, or of a commit with it; None: not known.
        key: the values of that row's key columns; None: not known, or the log has no key.
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
    """A view has not taken in yet what was waited for."""

    code = "VIEW_NOT_READY"


class InUseError(Error):
    """Something that views read cannot be dropped before them."""

    code = "IN_USE"


class ObjectChangedError(Error):
    """What a statement was planned over was dropped, replaced or altered before it could run."""

    code = "OBJECT_CHANGED"


class DdlTimeoutError(Error):
    """A statement that changes what exists has waited too long for another one."""

    code = "DDL_TIMEOUT"


class MissingExtraError(Error):
    """A package that only some users need is not installed; the hint says how to install it."""

    code = "MISSING_EXTRA"


class ConnectorError(Error):
    """Trouble between a connector and the system outside; it is tried again, later and later."""

    code = "CONNECTOR"


class ConnectorFailedError(ConnectorError):
    """Trouble that no repetition ends: wrong options, a lost slot, data that does not fit.

    The connector stops until somebody has mended the cause: ``ALTER SOURCE s RESUME``.
    """

    code = "CONNECTOR_FAILED"


class FileAccessError(Error):
    """A file, or a store of files, that cannot be read or written."""

    code = "FILE"


class FileRefusedError(FileAccessError):
    """A file outside of the directories that the server gives access to."""

    code = "FILE_REFUSED"


class FileFormatError(FileAccessError):
    """A file that is damaged, not complete, or of another format than it should be."""

    code = "FILE_FORMAT"


class ServerError(Error):
    """The root of what a server refuses."""

    code = "SERVER"


class DisconnectedError(ServerError):
    """The server cannot be reached, or the connection broke before its answer came."""

    code = "DISCONNECTED"


class AuthenticationError(ServerError):
    """There is no key, or it is none of this server's."""

    code = "UNAUTHENTICATED"


class RoleError(ServerError):
    """The role of the key does not allow it."""

    code = "ROLE"


class AddressRefusedError(ServerError):
    """An address that a tenant's webhook may not reach."""

    code = "ADDRESS_REFUSED"


class LimitError(ServerError):
    """More than the server's limits allow: a body, connections, subscriptions."""

    code = "LIMIT"


class TooLargeError(LimitError):
    """A body or a message that is larger than the server takes."""

    code = "TOO_LARGE"


class OriginError(ServerError):
    """A web page of another site, or a name for this machine that it was not given."""

    code = "ORIGIN"


class QueryTimeoutError(ServerError):
    """The statement took longer than the server allows."""

    code = "QUERY_TIMEOUT"


class RequestError(ServerError):
    """A request that is not well formed."""

    code = "BAD_REQUEST"


class MediaTypeError(RequestError):
    """A body in a format that the server does not read."""

    code = "MEDIA_TYPE"


class KeyFileError(ServerError):
    """The file of the API keys cannot be read."""

    code = "KEY_FILE"
