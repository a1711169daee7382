"""Pointers to objects of the library, which several threads may use and one of them may close."""

from __future__ import annotations

import ctypes
import threading
from typing import Any, Callable, Optional


class Handle:
    """A pointer that functions of the library take. They count as calls in progress until they
    return: an object that was closed is freed by `free` when the last of them has returned. Any
    thread."""

    def __init__(self, name: str, free: Callable[[ctypes.c_void_p], Any]) -> None:
        """`name` is for errors, as in "the stream". `free` must not keep the object that has the
        handle, since that is deleted when nothing else keeps it."""
        self.pointer = ctypes.c_void_p()
        self._name = name
        self._free = free
        self._calls = 0
        self._closed = False
        # Reentrant: a signal handler may close the object while its thread is in here.
        self.lock = threading.RLock()

    @property
    def closed(self) -> bool:
        """Whether no further call can begin."""
        return self._closed

    def out(self) -> Any:
        """For the function that makes the object and stores its pointer."""
        return ctypes.byref(self.pointer)

    def check_open(self) -> None:
        """ValueError if the object is closed."""
        if self._closed:
            raise ValueError(f"{self._name} is closed")

    def enter(self) -> ctypes.c_void_p:
        """Begins a call, which leave() ends. ValueError if the object is closed."""
        with self.lock:
            # Counted before the check, so that a signal handler in between frees nothing.
            self._calls += 1
            if self.pointer and not self._closed:
                return self.pointer
        self.leave()
        raise ValueError(f"{self._name} is closed")

    def leave(self) -> None:
        """Ends a call."""
        with self.lock:
            self._calls -= 1
            if self._calls or not self._closed:
                return
            pointer, self.pointer = self.pointer, ctypes.c_void_p()
        if pointer:
            self._free(pointer)

    def begin_closing(self) -> Optional[ctypes.c_void_p]:
        """No further call can begin. Returns the pointer, and counts as a call until leave(); None
        if the object was closed before, or could not be made."""
        with self.lock:
            was_open = self.pointer and not self._closed
            self._closed = True
            if not was_open:
                return None
            self._calls += 1
            return self.pointer

    def close(self) -> bool:
        """Frees the object as soon as no call is in progress. Returns False if it was closed."""
        if self.begin_closing() is None:
            return False
        self.leave()
        return True

    def take(self) -> ctypes.c_void_p:
        """The pointer, for a function that frees the object. ValueError if it was taken before."""
        with self.lock:
            self.check_open()
            self._closed = True
            pointer, self.pointer = self.pointer, ctypes.c_void_p()
        return pointer
