"""The shape of the repository: who imports whom, and where the packages lie."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("proxy", "prefix_index", "backends", "compression", "measurement")
ALLOWED = {
    "proxy": {"proxy", "prefix_index", "backends", "compression", "measurement"},
    "prefix_index": {"prefix_index"},
    "backends": {"backends"},
    "compression": {"compression"},
    "measurement": {"measurement"},
}
# Costly or optional imports: only where they are used, and never at the top of a module there.
LAZY = {"torch", "transformers", "llmlingua", "redis", "zmq", "openai"}


def imports(path: Path, *, top_level: bool = False) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = tree.body if top_level else list(ast.walk(tree))
    names = []
    for node in nodes:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names.append(node.module or "")
    return names


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def test_packages_are_links_to_the_root_folders_without_init_files() -> None:
    """A root `compression/__init__.py` would hide Python 3.14's standard package from `gzip`."""
    for package in PACKAGES:
        link = ROOT / "src" / "prefold" / package

        assert link.is_symlink()
        assert link.resolve() == ROOT / package
        assert not (ROOT / package / "__init__.py").exists()


@pytest.mark.parametrize("package", PACKAGES)
def test_packages_import_only_what_they_may(package: str) -> None:
    """Leaves import none of each other and never the proxy."""
    for path in (ROOT / package).rglob("*.py"):
        for name in imports(path):
            parts = name.split(".")
            if parts[0] == "prefold" and len(parts) > 1:
                assert parts[1] in ALLOWED[package], f"{path.name} imports {name}"


def test_nobody_imports_the_root_folders_by_their_bare_names() -> None:
    """`import compression` would be the standard library's on Python 3.14."""
    for path in modules():
        for name in imports(path):
            assert name.split(".")[0] not in PACKAGES, f"{path.name} imports {name}"


def test_heavy_libraries_are_never_imported_at_module_level() -> None:
    """`prefold serve` must not pay for what it does not use."""
    for path in modules():
        for name in imports(path, top_level=True):
            if path.parent.name == "demo":  # a command of its own, loaded when named
                continue
            assert name.split(".")[0] not in LAZY, f"{path.name} imports {name}"


def test_every_module_says_what_it_is_for() -> None:
    """A module begins with a docstring."""
    for path in modules():
        assert ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))), path
