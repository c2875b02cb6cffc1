"""``python -m millstream``: the command line."""

from __future__ import annotations

from millstream.cli.app import main

if __name__ == "__main__":
    main()
