"""The calls of a run that change files, as fault_library.cpp writes them down, and what a power cut leaves of them.

POSIX promises little: the bytes of a file are there after fsync of the file, its name after fsync of its folder. What was
not synced may be there in whole, in part or not at all, in any order. `PowerCut` keeps both what is sure and what is open.
"""

import dataclasses
import pathlib
import random

BLOCK = 512  # what a disk writes whole


@dataclasses.dataclass
class Call:
    operation: str
    fd: int = -1
    path: str = ""
    to: str = ""
    place: int = 0
    data: bytes = b""


def read_trace(path):
    """The calls of a trace, in order. `look` and `folder` are opens that change nothing and are not counted."""
    calls, raw, at = [], pathlib.Path(path).read_bytes(), 0
    while at < len(raw):
        end = raw.index(b"\n", at)
        name, *fields = raw[at:end].decode().split("\t")
        at = end + 1
        if name == "write":
            fd, place, size = map(int, fields)
            calls.append(Call(name, fd=fd, place=place, data=raw[at:at + size]))
            at += size
        elif name in ("open", "create", "folder", "look"):
            calls.append(Call(name, fd=int(fields[0]), path=fields[1], to=fields[2] if len(fields) > 2 else ""))
        elif name == "truncate":
            calls.append(Call(name, fd=int(fields[1]), place=int(fields[2])))
        elif name in ("fsync", "close"):
            calls.append(Call(name, fd=int(fields[1])))
        else:  # rename, unlink, mkdir
            calls.append(Call(name, path=fields[1], to=fields[2] if len(fields) > 2 else ""))
    return calls


def is_counted(call):
    return call.operation not in ("look", "folder")


class File:
    def __init__(self):
        self.now = bytearray()
        self.sure = bytearray()  # as of the last fsync

    def write(self, place, data):
        if len(self.now) < place:
            self.now.extend(bytes(place - len(self.now)))
        self.now[place:place + len(data)] = data


class PowerCut:
    """Plays calls; left() gives the files after a power cut: path -> bytes, None for a folder."""

    def __init__(self):
        self.now, self.sure = {}, {}  # path -> File, or None for a folder
        self.pending = {}  # folder -> changes of names in it that are not synced: (path, File, None or GONE)
        self.fds = {}

    GONE = object()

    def _name(self, path, what):
        if what is self.GONE:
            self.now.pop(path, None)
        else:
            self.now[path] = what
        self.pending.setdefault(str(pathlib.PurePath(path).parent), []).append((path, what))

    def play(self, call):
        if call.operation in ("create", "open"):
            if call.path not in self.now:
                self._name(call.path, File())
            if call.to == "truncated":
                self.now[call.path].now.clear()
            self.fds[call.fd] = self.now[call.path]
        elif call.operation == "look":
            self.fds[call.fd] = self.now.get(call.path)
        elif call.operation == "folder":
            self.fds[call.fd] = call.path
        elif call.operation == "write":
            self.fds[call.fd].write(call.place, call.data)
        elif call.operation == "truncate":
            file = self.fds[call.fd]
            del file.now[call.place:]
        elif call.operation == "close":
            self.fds.pop(call.fd, None)
        elif call.operation == "fsync":
            target = self.fds.get(call.fd)
            if isinstance(target, File):
                target.sure = bytearray(target.now)
            elif isinstance(target, str):
                for path, what in self.pending.pop(target.rstrip("/"), []):
                    self._settle(self.sure, path, what)
        elif call.operation == "rename":
            file = self.now[call.path]
            # One change of the folder: both names or neither.
            self.now.pop(call.path)
            self.now[call.to] = file
            folder = str(pathlib.PurePath(call.to).parent)
            self.pending.setdefault(folder, []).append((call.path, (call.to, file)))
        elif call.operation == "unlink":
            self._name(call.path, self.GONE)
        elif call.operation == "mkdir":
            self._name(call.path, None)

    def _settle(self, names, path, what):
        if what is self.GONE:
            names.pop(path, None)
        elif isinstance(what, tuple):
            names.pop(path, None)
            names[what[0]] = what[1]
        else:
            names[path] = what

    def left(self, how, seed=0):
        """how: "sure" (nothing that was not synced), "names" (all names, unsynced bytes are zeros), "random"."""
        chance, names = random.Random(seed), dict(self.sure)
        for changes in self.pending.values():
            count = {"sure": 0, "names": len(changes), "random": chance.randint(0, len(changes))}[how]
            for path, what in changes[:count]:
                self._settle(names, path, what)
        result = {}
        for path, file in names.items():
            # A name in a folder that is not there is not there.
            parents = [str(parent) for parent in pathlib.PurePath(path).parents]
            if any(parent in self.now and parent not in names for parent in parents):
                continue
            result[path] = None if file is None else self._bytes(file, how, chance)
        return result

    @staticmethod
    def _bytes(file, how, chance):
        sure, now = bytes(file.sure), bytes(file.now)
        if how == "sure" or sure == now:
            return sure
        if how == "names":
            return now[:len(sure)] + bytes(max(0, len(now) - len(sure))) if now.startswith(sure) else sure
        blocks = []
        for at in range(0, len(now), BLOCK):
            new, old = now[at:at + BLOCK], sure[at:at + BLOCK]
            blocks.append(new if new == old or chance.random() < 0.5 else old.ljust(len(new), b"\0"))
        whole = b"".join(blocks)
        return whole[:chance.randint(min(len(sure), len(whole)), len(whole))]


def write_out(files, before, after):
    """The files of left() on a disk, with the folder `before` of their paths replaced by `after`."""
    for path in sorted(files):
        place = pathlib.Path(str(path).replace(str(before), str(after), 1))
        if files[path] is None:
            place.mkdir(parents=True, exist_ok=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(files[path])
