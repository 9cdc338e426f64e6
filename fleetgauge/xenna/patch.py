"""The patch on `PipelineMonitor._make_stats`: who installed it, who still needs it, and who watches what.

Knows nothing of statistics: it hands each pipeline's to the watchers of that pipeline. A pipeline belongs to
the watchers opened around it, in its thread or in a context copied from there (`asyncio.to_thread`).
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from contextvars import ContextVar
from typing import Any

from fleetgauge.xenna.recording import HookRecording
from fleetgauge.xenna.wandb_log import log

METHOD = "_make_stats"
MODULE = "cosmos_xenna.pipelines.private.monitoring"
INSTALL = "pip install cosmos-xenna ray tqdm"  # releases up to 0.5.12 import tqdm without declaring it

_lock = threading.RLock()
patches: dict[type, Patch] = {}
watchers: dict[HookRecording, type] = {}  # and the class on which each needs the patch
_around: ContextVar[tuple[HookRecording, ...]] = ContextVar("fleetgauge_xenna_watchers", default=())


class Patch:
    """Our wrapper on one class, for as long as it has watchers. Used under the lock.

    It has to go without a trace, though hooks overlap in any order and others may patch the same method:
        hook A opens      the class has wrapper(original)
        hook B opens      the same wrapper serves both
        somebody patches  the class has theirs(wrapper(original))
        A, then B close   what the class has is not ours to remove: the wrapper stays inside theirs and,
                          no longer the patch of its class, only passes calls on
    """

    def __init__(self, monitor_class: type) -> None:
        original = getattr(monitor_class, METHOD)
        self._class = monitor_class
        self._inherited = METHOD not in vars(monitor_class)
        self._original = original

        # The frame that matters is the caller's: on leaving, upstream asks once more, with placeholders
        # for the queues. What is right in that answer we read ourselves, when the monitor closes.
        @functools.wraps(original)
        def make_stats(*args: Any, **kwargs: Any) -> Any:  # Any: they are passed through untouched
            stats = original(*args, **kwargs)
            if patches.get(monitor_class) is self and args and sys._getframe(1).f_code.co_name != "__exit__":
                _show(args[0], stats)
            return stats

        self._wrapper = make_stats
        setattr(monitor_class, METHOD, make_stats)

    def restore(self) -> None:
        """Put the original back, unless someone has wrapped the wrapper: then it stays, and does nothing."""
        if vars(self._class).get(METHOD) is not self._wrapper:
            return
        if self._inherited:
            delattr(self._class, METHOD)
        else:
            setattr(self._class, METHOD, self._original)


def find_monitor() -> type:
    """The class to patch. Raises whatever importing it raises, and TypeError where it is not as known."""
    monitor_class = importlib.import_module(MODULE).PipelineMonitor
    if not inspect.isclass(monitor_class) or not inspect.isfunction(getattr(monitor_class, METHOD, None)):
        raise TypeError(f"its PipelineMonitor has no method {METHOD}")
    return monitor_class


def open_watcher(watcher: HookRecording, monitor_class: type) -> None:
    """Show a watcher the pipelines that run from here on, until it is closed; the first one installs."""
    with _lock:
        first = monitor_class not in patches
        if first:
            patches[monitor_class] = Patch(monitor_class)
        around = tuple(one for one in _around.get() if not one.closed)
        if around:
            watcher.group = around[0].group
        _around.set((*around, watcher))
        watchers[watcher] = monitor_class
    if first:
        say(logging.INFO, "Installed PipelineMonitor.%s patch", METHOD)


def close_watcher(watcher: HookRecording) -> None:
    """Stop showing; the last one restores."""
    with _lock:
        monitor_class = watchers.pop(watcher)
        watcher.closed = True
        _around.set(tuple(one for one in _around.get() if one is not watcher))
        if monitor_class not in watchers.values():
            patches.pop(monitor_class).restore()


def watchers_here() -> tuple[HookRecording, ...]:
    """The watchers opened around the running code, innermost last."""
    return tuple(one for one in _around.get() if not one.closed)


def _watching(monitor: object) -> Sequence[HookRecording]:
    """Whose pipeline this is. One that runs where no watcher was opened (a plain thread) goes to the only
    ones there are, if those have no other: with several to choose from, a guess would be a false record.
    """
    here = watchers_here()
    if here:
        return here
    with _lock:
        others = list(watchers)
    alone = len({id(one.group) for one in others}) == 1
    return others if alone and all(one.watches(monitor) for one in others) else ()


def _show(monitor: object, stats: object) -> None:
    with suppress(Exception):
        watching = _watching(monitor)
        if watching:
            with suppress(Exception):
                _await_close(monitor)
        for watcher in watching:
            watcher.observe(monitor, stats)


def _await_close(monitor: Any) -> None:  # Any: an attribute is set on it
    """Learn when the pipeline ends, from its own monitor object: the class stays as it is.

    The object must die when the pipeline drops it, because it keeps Ray's actors alive: no reference to it
    is kept, and the attribute is taken away again before the real method runs.
    """
    if "close" in vars(monitor) or not callable(getattr(type(monitor), "close", None)):
        return
    reference = weakref.ref(monitor)

    def close(*args: Any, **kwargs: Any) -> Any:  # Any: they are passed through untouched
        monitor = reference()
        if monitor is None:
            return None
        with suppress(Exception):
            del monitor.close
        with suppress(Exception):
            _show_end(monitor)
        return type(monitor).close(monitor, *args, **kwargs)

    monitor.close = close


def _show_end(monitor: Any) -> None:  # Any: private attributes of it are read
    with _lock:
        listening = list(watchers)
    if listening:
        pools = [pool.make_stats() for pool in monitor._actor_pools]
        for watcher in listening:
            watcher.finish(monitor, pools)


def say(level: int, text: str, *arguments: object) -> None:
    """Log; a handler that fails must not fail our host."""
    with suppress(Exception):
        log.log(level, text, *arguments)
