"""Become another program that ends when the process that started it ends.

``python launch.py PARENT SIGNAL USER COMMAND...``: PARENT is the pid of the caller, SIGNAL the
number the kernel sends to the program when the caller is gone (even by SIGKILL), USER the user
to become ("-": nobody else). The program keeps this process's pid. On systems other than Linux
the signal is not sent.

Stands alone (standard library only), and runs in a process of its own because code between
``fork`` and ``exec`` is unsafe in a program with threads.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import sys

PR_SET_PDEATHSIG = 1


def become(user: str) -> None:
    """Drop all privileges that ``user`` does not have."""
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


def die_with(parent: int, signal: int) -> None:
    """Ask the kernel for ``signal`` when the parent ends; leave now if it has ended already."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the process that asked for this one is gone")


def main(arguments: list[str]) -> None:
    """Run what the module docstring says."""
    parent, signal, user, *command = arguments
    if user != "-":
        become(user)
    die_with(int(parent), int(signal))  # after become(): a change of user clears it
    os.execv(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
