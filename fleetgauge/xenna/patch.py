"""The patch on `PipelineMonitor._make_stats`, and which open hooks a pipeline belongs to.

No release of cosmos-xenna has a callback for statistics. A pipeline belongs to the hooks that were opened in
its own thread, or else to all that are open. Nothing here knows statistics: those of a pipeline are passed to
the recordings of its hooks.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import logging
import os
import sys
import threading
import weakref
from contextlib import suppress
from typing import Any

from fleetgauge.xenna.recording import PipelineRecording
from fleetgauge.xenna.wandb_log import log

METHOD = "_make_stats"
MODULE = "cosmos_xenna.pipelines.private.monitoring"
INSTALL = "pip install cosmos-xenna ray tqdm"  # releases up to 0.5.12 import tqdm without declaring it

_lock = threading.RLock()
_patches: dict[type, Patch] = {}
_recordings: tuple[PipelineRecording, ...] = ()  # replaced under the lock, read without it
_forked_inside_hook = False


class Patch:
    """Our wrapper on one class. Made and removed under the lock.

    It must be removable though hooks overlap in any order and others may patch the same method:
        hook A opens      the class has wrapper(original)
        hook B opens      the same wrapper serves both
        others patch      the class has theirs(wrapper(original))
        A, then B close   theirs is not ours to remove: the wrapper stays inside it and only passes calls on
    """

    def __init__(self, monitor_class: type) -> None:
        original = getattr(monitor_class, METHOD)
        self._class = monitor_class
        self._inherited = METHOD not in vars(monitor_class)
        self._original = original

        # The frame that matters is the caller's: on leaving, upstream calls once more, with placeholders
        # for the queues. What is right of that is read when the monitor closes.
        @functools.wraps(original)
        def make_stats(*args: Any, **kwargs: Any) -> Any:  # Any: they are passed through untouched
            stats = original(*args, **kwargs)
            # After `restore` the wrapper may remain inside another patch: then it only passes calls on.
            if _patches.get(monitor_class) is self and args and sys._getframe(1).f_code.co_name != "__exit__":
                with suppress(Exception):
                    _observe(args[0], stats)
            return stats

        self._wrapper = make_stats
        setattr(monitor_class, METHOD, make_stats)

    def restore(self) -> None:
        """Put the original back, unless other code has wrapped the wrapper: then that stays, and is idle."""
        if vars(self._class).get(METHOD) is not self._wrapper:
            return
        if self._inherited:
            delattr(self._class, METHOD)
        else:
            setattr(self._class, METHOD, self._original)


def find_monitor() -> type:
    """Return the class to patch. Raises what its import raises, and TypeError where it is another."""
    monitor_class = importlib.import_module(MODULE).PipelineMonitor
    if not inspect.isclass(monitor_class) or not inspect.isfunction(getattr(monitor_class, METHOD, None)):
        raise TypeError(f"its PipelineMonitor has no method {METHOD}")
    return monitor_class


def register(recording: PipelineRecording, monitor_class: type) -> None:
    """Give a recording its pipelines from here on; the first one installs the patch.

    Raises what setting an attribute of the class raises.
    """
    global _recordings
    with _lock:
        first = monitor_class not in _patches
        if first:
            _patches[monitor_class] = Patch(monitor_class)
        _recordings = (*_recordings, recording)
    if first:
        log_safely(logging.INFO, "Installed PipelineMonitor.%s patch", METHOD)


def unregister(recording: PipelineRecording) -> bool:
    """Stop; the last one removes the patch. Return False in a forked child, whose recording it is not."""
    global _recordings
    with _lock:
        known = recording in _recordings
        _recordings = tuple(other for other in _recordings if other is not recording)
        if not _recordings:
            while _patches:
                _patches.popitem()[1].restore()
    return known


def log_safely(level: int, text: str, *arguments: object) -> None:
    """Log; a handler that fails must not fail the host."""
    with suppress(Exception):
        log.log(level, text, *arguments)


def _observe(monitor: object, stats: object) -> None:
    """Pass the statistics of a monitor to the recordings it belongs to."""
    recordings = _recordings
    if not recordings:
        _warn_if_forked()
        return
    thread = threading.get_ident()
    # The totals at the end are worth less than the statistics: a monitor that takes no attribute is recorded
    # too.
    with suppress(Exception):
        _read_totals_on_close(monitor)
    # A pipeline in a thread of its own, such as a server's, has no hook in that thread: all open hooks record
    # it.
    for recording in [found for found in recordings if found.thread == thread] or recordings:
        recording.observe(monitor, stats)


def _read_totals_on_close(monitor: Any) -> None:  # Any: an attribute is set on it
    """Have the totals of a pipeline recorded when its monitor closes; the class stays as it is.

    The object must die when the pipeline drops it, because it keeps Ray's actors alive: no reference to it
    is stored, and the attribute is removed again before the real method runs.
    """
    # Done already for this monitor, or a release without `close`.
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
            # The last statistics of a pipeline are older than its end: its stages are read once more.
            pools = [pool.make_stats() for pool in monitor._actor_pools] if _recordings else []
            for recording in _recordings:
                recording.finish(monitor, pools)
        return type(monitor).close(monitor, *args, **kwargs)

    monitor.close = close


def _warn_if_forked() -> None:
    """Warn, once, that a pipeline runs in a child which was forked inside an open hook."""
    global _forked_inside_hook
    if _forked_inside_hook:
        _forked_inside_hook = False
        text = "a pipeline is not recorded: its process was forked inside an open hook; open one in the child"
        log_safely(logging.WARNING, text)


def _forget_in_child() -> None:
    """Start a forked child without hooks, and with a new lock.

    Another thread may have acquired the old one at the fork, and does not exist in the child.
    """
    global _lock, _recordings, _forked_inside_hook
    _lock = threading.RLock()
    _forked_inside_hook = bool(_recordings) or _forked_inside_hook
    _recordings = ()


os.register_at_fork(after_in_child=_forget_in_child)
