"""Act when a script imports a package, without importing it."""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType


class _Loader(importlib.abc.Loader):
    """Loads a package as its own loader does, then acts."""

    def __init__(self, loader: importlib.abc.Loader, action: Callable[[], None]) -> None:
        self._loader, self._action = loader, action

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        if module.__spec__ is not None:
            module.__spec__.loader = self._loader
        module.__loader__ = self._loader
        self._loader.exec_module(module)
        self._action()


class _Finder(importlib.abc.MetaPathFinder):
    """Finds one package as the other finders do, once."""

    def __init__(self, name: str, action: Callable[[], None]) -> None:
        self._name, self._action = name, action

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader, self._action)
                return spec
        return None


def after_import(name: str, action: Callable[[], None]) -> None:
    """Run an action when a package has been imported, at once if it has been."""
    if name in sys.modules:
        action()
    else:
        sys.meta_path.insert(0, _Finder(name, action))
