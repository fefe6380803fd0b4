"""The charting library's one file, from the package `plotly` where that is installed (the extra
`dashboard`). The package itself is not imported: only its JavaScript is used.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

STATIC = Path(__file__).with_name("static")
MISSING = "charts need the package plotly: pip install 'prefold[dashboard]'"


def plotly_file() -> Path | None:
    """plotly.min.js (MIT); None: it is not installed."""
    spec = importlib.util.find_spec("plotly")
    for folder in (spec.submodule_search_locations if spec is not None else None) or ():
        file = Path(folder) / "package_data" / "plotly.min.js"
        if file.is_file():
            return file
    return None
