"""The registry of connectors: one module each, found by name and imported when it is used.

``connectors/sources/postgres_cdc.py`` is the source ``'postgres-cdc'``; its class is the module's
``CONNECTOR``. Other packages offer theirs as entry points: group ``millstream.connectors``, a name
such as ``source.acme`` or ``sink.acme``, and the class as its value.
"""

from __future__ import annotations

import difflib
import importlib
import pkgutil
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, Any, Final, Literal, cast

from millstream.connectors.contract import SinkConnector, SourceConnector
from millstream.errors import ConnectorError, MissingExtraError, ObjectNotFoundError

if TYPE_CHECKING:
    from types import ModuleType

Side = Literal["source", "sink"]
GROUP: Final = "millstream.connectors"
_registered: Final[dict[tuple[Side, str], type[SourceConnector | SinkConnector]]] = {}


def register(connector: type[SourceConnector | SinkConnector]) -> None:
    """Make a connector available in this process under its name. Also usable as a decorator."""
    side: Side = "source" if issubclass(connector, SourceConnector) else "sink"
    _registered[side, connector.name] = connector


def unregister(connector: type[SourceConnector | SinkConnector]) -> None:
    """Undo ``register``."""
    side: Side = "source" if issubclass(connector, SourceConnector) else "sink"
    _registered.pop((side, connector.name), None)


def names(side: Side) -> list[str]:
    """The names of all connectors of one side; none is imported."""
    found = {name for each, name in _registered if each == side}
    package = importlib.import_module(f"millstream.connectors.{side}s")
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            found.add(module.name.replace("_", "-"))
    for entry in entry_points(group=GROUP):
        each, _, name = entry.name.partition(".")
        if each == side:
            found.add(name)
    return sorted(found)


def source_connector(name: str) -> type[SourceConnector]:
    """The source connector of a name; raises as ``sink_connector``."""
    return cast("type[SourceConnector]", _found("source", name, SourceConnector))


def sink_connector(name: str) -> type[SinkConnector]:
    """The sink connector of a name.

    Raises:
        ObjectNotFoundError: there is none; the hint has the nearest.
        MissingExtraError: what it needs is not installed; the hint has the command.
    """
    return cast("type[SinkConnector]", _found("sink", name, SinkConnector))


def _found(side: Side, name: str, base: type[Any]) -> Any:  # noqa: ANN401 - a class of the base
    known = names(side)
    if name not in known:
        near = difflib.get_close_matches(name, known, 1)
        did = f"did you mean '{near[0]}'? " if near else ""
        others = names("sink" if side == "source" else "source")
        only = (
            f"it is a {'sink' if side == 'source' else 'source'} only; " if name in others else ""
        )
        raise ObjectNotFoundError(
            f"there is no {side} connector {name!r}",
            hint=f"{only}{did}available: {', '.join(known)}",
        )
    found = _registered.get((side, name)) or _entry(side, name) or _built_in(side, name)
    if not (isinstance(found, type) and issubclass(found, base)):
        raise ConnectorError(f"{found!r} is no {base.__name__}", hint=f"of the connector {name!r}")
    return found


def _entry(side: Side, name: str) -> Any:  # noqa: ANN401 - whatever a package offers
    for entry in entry_points(group=GROUP, name=f"{side}.{name}"):
        try:
            return entry.load()
        except ImportError as error:
            package = entry.dist.name if entry.dist is not None else entry.module
            raise MissingExtraError(
                f"the connector {name!r} of {package} cannot be imported: {error}",
                hint=f"see how {package} is installed",
            ) from error
    return None


def _built_in(side: Side, name: str) -> Any:  # noqa: ANN401 - a module's CONNECTOR
    module = importlib.import_module(f"millstream.connectors.{side}s.{name.replace('-', '_')}")
    return module.CONNECTOR


def needs(module: str, extra: str) -> ModuleType:
    """Import a module of an optional package, for connectors that need it when they are opened.

    >>> needs("json", "kafka").__name__
    'json'

    Raises:
        MissingExtraError: the package is not installed; the hint has the command.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise MissingExtraError(
            f"{module} is not installed", hint=f"pip install 'millstream[{extra}]'"
        ) from error
