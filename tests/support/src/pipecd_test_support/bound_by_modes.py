# SPDX-License-Identifier: Apache-2.0
"""Root without the right to write where the mode of a file forbids it.

A test of an unwritable folder needs a user who cannot write there. Becoming another user would do,
but that one may not be able to read the checkout, or the Python in it. Root keeps the right to read
everything.
"""

import ctypes
import os
from typing import Final

CAP_DAC_OVERRIDE: Final = 1
VERSION_3: Final = 0x20080522


class _Header(ctypes.Structure):
    _fields_ = (("version", ctypes.c_uint32), ("pid", ctypes.c_int))


class _Data(ctypes.Structure):
    _fields_ = (
        ("effective", ctypes.c_uint32),
        ("permitted", ctypes.c_uint32),
        ("inheritable", ctypes.c_uint32),
    )


def obey_modes() -> None:
    """Give up, in this process, the right to write wherever it wants; others have none."""
    libc = ctypes.CDLL(None, use_errno=True)
    header = _Header(VERSION_3, 0)
    data = (_Data * 2)()
    if libc.capget(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    for name in ("effective", "permitted", "inheritable"):
        setattr(data[0], name, getattr(data[0], name) & ~(1 << CAP_DAC_OVERRIDE))
    if libc.capset(ctypes.byref(header), data) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
