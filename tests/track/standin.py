"""``python -m tests.track.standin BEHAVIOUR FILE NAME``: the process of a tracker that writes down what it hears, or fails."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mpca.track import main
from mpca.track.port import Begin
from mpca.track.scalars import Scalar

SECRET = "https://ann:hush@there/?api_token=hush"


class StandIn:
    """Each call is a line of the file. A behaviour is the name of a call, and what goes wrong in it."""

    def __init__(self, behaviour: str, path: Path) -> None:
        self.fails_in, _, self.how = behaviour.partition(" ")
        self.path, self.tries = path, 0

    def begin(self, run: Begin) -> tuple[str, str]:
        self._call("begin", **asdict(run))
        return run.run or "0a1b", SECRET

    def log(self, scalars: Sequence[Scalar]) -> None:
        self._call("log", scalars=[[one.name, one.value, one.step, one.t] for one in scalars])

    def end(self, status: str, reason: str, files: Sequence[str]) -> None:
        self._call("end", status=status, reason=reason, files=files)

    def _call(self, call: str, **given: Any) -> None:
        self.tries += call == self.fails_in
        with self.path.open("a") as file:
            file.write(json.dumps({"call": call, **given, "pid": os.getpid()}) + "\n")
        if call == self.fails_in:
            if self.how == "hangs":
                time.sleep(3600)
            if self.how == "dies":
                print(f"no room at {SECRET}", file=sys.stderr, flush=True)
                os._exit(3)
            if self.how == "is away" or (self.tries == 1 if self.how == "fails once" else self.tries % 2):
                raise ConnectionError(f"{SECRET} refused\nand more")


if __name__ == "__main__":
    behaviour, path, name = sys.argv[1:]
    main.BACKENDS[name] = lambda: StandIn(behaviour, Path(path))
    main.main(name)
