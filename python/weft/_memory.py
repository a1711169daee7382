"""Memory of Python objects, by the buffer protocol and without copying."""

from __future__ import annotations

import ctypes
from ctypes import POINTER, Structure, byref, c_char_p, c_int, c_ssize_t, c_void_p, py_object
from typing import Any


class _PyBuffer(Structure):
    """Py_buffer of the stable interface of CPython 3.11; those before have the same layout."""

    _fields_ = [("buf", c_void_p), ("obj", c_void_p), ("len", c_ssize_t), ("itemsize", c_ssize_t),
                ("readonly", c_int), ("ndim", c_int), ("format", c_char_p),
                ("shape", POINTER(c_ssize_t)), ("strides", POINTER(c_ssize_t)),
                ("suboffsets", POINTER(c_ssize_t)), ("internal", c_void_p)]


_SIMPLE = 0
_get = ctypes.pythonapi.PyObject_GetBuffer
_get.argtypes = [py_object, POINTER(_PyBuffer), c_int]
_get.restype = c_int
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [POINTER(_PyBuffer)]
_release.restype = None


class Memory:
    """The memory of an object: its address and size. The object cannot free or resize the memory
    until release() is called. The object must be contiguous in memory, as bytes, bytearray, mmap
    and most arrays of numpy are; others raise BufferError or ValueError."""

    def __init__(self, owner: Any) -> None:
        self._held = False
        self._view = _PyBuffer()
        _get(owner, byref(self._view), _SIMPLE)
        self._held = True
        self.owner = owner
        self.address: int = self._view.buf or 0
        self.size: int = self._view.len
        self.readonly = bool(self._view.readonly)

    def release(self) -> None:
        """Lets the object free its memory again. May be called twice."""
        if self._held:
            self._held = False
            _release(byref(self._view))

    def __enter__(self) -> "Memory":
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def __del__(self) -> None:
        self.release()
